"""A queue is taken out of service: its jobs go on, move or end as was chosen, none is forgotten."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest

from scheduling.domain import queue_draining
from scheduling.domain.queue_draining import Running, Waiting
from scheduling.models import Job, JobCount, Queue
from tenants.domain.access import load_actor
from tenants.domain.errors import Conflict, Denied, Invalid, NotFound
from tenants.models import AuditRow, GrantRole
from tests.factories.cluster import fresh, role
from tests.factories.rivals import Rivals
from tests.people import make_grant, make_queue, make_unit, make_user

GPU = "nvidia.com/gpu"


@dataclass(slots=True)
class Yard:
    """`speech` runs 4 jobs and keeps 2 waiting; `robots` of the same tenant can take them."""

    rivals: Rivals

    @property
    def speech(self) -> Queue:
        return Queue.objects.get(id=self.rivals.speech.id)

    @property
    def robots(self) -> Queue:
        return Queue.objects.get(id=self.rivals.robots.id)

    def drain(self, **choices: Any) -> queue_draining.Drained:
        site = self.rivals.site
        given: dict[str, Any] = {"actor": site.admin, "queue_id": self.rivals.speech.id}
        return queue_draining.drain(**(given | choices), now=site.now, reason="end of project")

    def phases(self, queue: Queue) -> list[str]:
        return sorted(Job.objects.filter(queue=queue).values_list("phase", flat=True))


@pytest.fixture
def yard(rivals: Rivals) -> Yard:
    return Yard(rivals)


def test_closing_alone_lets_everything_go_on(yard: Yard) -> None:
    """With both kept, the queue is Closing and its jobs are as they were."""
    before = yard.phases(yard.speech)

    result = yard.drain()

    assert (result.done, result.left, result.refused) == (0, 0, ())
    assert yard.speech.state == "Closing"
    assert yard.phases(yard.speech) == before == ["Pending"] * 2 + ["Running"] * 4


def test_waiting_jobs_are_moved_and_counted_there(yard: Yard) -> None:
    """Moved jobs wait in the other queue, under its unit, and start from there."""
    waiting = Job.objects.filter(queue=yard.speech, phase="Pending")
    moving = set(waiting.values_list("id", flat=True))

    result = yard.drain(waiting=Waiting.MOVE, target_id=yard.robots.id)

    moved = Job.objects.filter(id__in=moving)
    assert (result.done, result.left) == (2, 0)
    assert {(job.queue.name, job.unit.name, job.spec["queue"]) for job in moved} == {
        ("robots", "robots", "robots")
    }
    left = JobCount.objects.filter(queue=yard.speech, phase="Pending")
    assert sum(left.values_list("amount", flat=True)) == 0
    assert AuditRow.objects.filter(action="job.move").count() == 2
    snapshot = {job.key: job.queue for job in _snapshot(yard)}
    assert {snapshot[str(job_id)] for job_id in moving} == {"robots"}


def _snapshot(yard: Yard) -> Any:
    site = yard.rivals.site
    return site.cache.refresh(site.cluster.id, site.now).jobs


def test_jobs_are_cancelled_where_chosen(yard: Yard) -> None:
    """Waiting and running ones end; when the last attempt is over the queue can be Closed."""
    result = yard.drain(waiting=Waiting.CANCEL, running=Running.CANCEL)

    assert result.done == 6
    assert set(yard.phases(yard.speech)) <= {"Terminated", "Terminating"}


def test_going_on_later_is_safe(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    """What did not fit in one go is told and done by the next."""
    monkeypatch.setattr(queue_draining, "AT_ONCE", 1)

    results = [yard.drain(waiting=Waiting.CANCEL) for _ in range(3)]

    assert [(one.done, one.left) for one in results] == [(1, 1), (1, 0), (0, 0)]


def test_what_is_refused_is_named_and_stays(yard: Yard) -> None:
    """A job whose name is taken in the other unit stays, with the reason."""
    site = yard.rivals.site
    job = Job.objects.filter(queue=yard.speech, phase="Pending").first()
    assert job is not None
    site.submit(role(gpu_milli=1000), queue=yard.robots, name=job.name)

    result = yard.drain(waiting=Waiting.MOVE, target_id=yard.robots.id)

    assert (result.done, result.left) == (1, 0)
    assert [(one.job_id, str(one.error)) for one in result.refused] == [
        (job.id, str(Conflict("job_name_taken", {"name": job.name, "unit": "robots"})))
    ]
    assert fresh(job).queue_id == yard.speech.id


@pytest.mark.parametrize("where", ["other-tenant", "inside", "closed", "none"])
def test_target_must_be_an_open_queue_of_the_tenant(yard: Yard, where: str) -> None:
    """Jobs are not moved out of the tenant, into the closing subtree, or to a closed queue."""
    site = yard.rivals.site
    targets: dict[str, Callable[[], UUID | None]] = {
        "other-tenant": lambda: make_queue(site.cluster, "mill", site.root, make_unit("mill")).id,
        "inside": lambda: yard.speech.id,
        "closed": lambda: _closed(yard).id,
        "none": lambda: None,
    }

    with pytest.raises(Invalid, match="queue_no_target"):
        yard.drain(waiting=Waiting.MOVE, target_id=targets[where]())

    assert yard.speech.state == "Open"


def _closed(yard: Yard) -> Queue:
    Queue.objects.filter(id=yard.robots.id).update(state="Closed")
    return yard.robots


def test_only_the_parents_manager_drains(yard: Yard) -> None:
    """The manager of the queue's own unit is refused, a stranger finds nothing."""
    rivals = yard.rivals
    own = rivals.actor(rivals.speech.unit, GrantRole.QUEUE_MANAGER, "own")
    other = rivals.actor(rivals.vision.unit, GrantRole.QUEUE_MANAGER, "other")
    Queue.objects.filter(id=rivals.speech.id).update(state="Closing")

    with pytest.raises(Denied):
        yard.drain(actor=own, waiting=Waiting.CANCEL)
    with pytest.raises(NotFound):
        yard.drain(actor=other, waiting=Waiting.CANCEL)

    assert yard.phases(yard.speech).count("Pending") == 2


def test_job_is_moved_by_its_owner_where_they_may_submit(yard: Yard) -> None:
    """An owner moves their own waiting job; a running one stays, and so does one of others."""
    rivals = yard.rivals
    assert rivals.speech.unit is not None
    user = make_user("owner")
    make_grant(user, GrantRole.RESEARCHER, rivals.speech.unit.tenant)
    actor = load_actor(user)
    waiting = Job.objects.filter(queue=yard.speech, phase="Pending").first()
    running = Job.objects.filter(queue=yard.speech, phase="Running").first()
    assert waiting is not None
    assert running is not None
    move: dict[str, Any] = {"actor": actor, "queue_id": yard.robots.id, "now": rivals.site.now}

    with pytest.raises(Denied):
        queue_draining.move_job(job_id=waiting.id, **move)
    Job.objects.filter(id__in=[waiting.id, running.id]).update(owner=user)
    queue_draining.move_job(job_id=waiting.id, **move)
    with pytest.raises(Conflict, match="job_not_waiting"):
        queue_draining.move_job(job_id=running.id, **move)

    assert fresh(waiting).queue_id == yard.robots.id


def test_group_and_closed_queue_take_no_moved_job(yard: Yard) -> None:
    """A job is not moved to a group of queues, nor to one that is closed."""
    job = Job.objects.filter(queue=yard.speech, phase="Pending").first()
    assert job is not None
    site = yard.rivals.site
    move: dict[str, Any] = {"actor": site.admin, "job_id": job.id, "now": site.now}

    with pytest.raises(Invalid, match="queue_not_leaf"):
        queue_draining.move_job(queue_id=yard.rivals.vision.id, **move)
    with pytest.raises(Invalid, match="queue_closed"):
        queue_draining.move_job(queue_id=_closed(yard).id, **move)


def test_contents_count_the_whole_subtree(yard: Yard) -> None:
    """What is asked about is the queue and all below it."""
    found = queue_draining.contents(Queue.objects.get(id=yard.rivals.vision.id))

    assert ([queue.name for queue in found.below], found.open_below) == (["robots"], 1)
    assert (found.waiting, found.running, found.ever) == (2, 4, 0)
