"""What people do with jobs: rights, refusals at submission, priority, cloning, bulk."""

from __future__ import annotations

from uuid import uuid4

import pytest

from scheduling.domain import jobs
from scheduling.domain.jobs import JobAction
from scheduling.models import History, Job, Queue, Role, Task
from tenants.domain.errors import Conflict, Denied, Invalid, NotFound
from tenants.models import AuditRow, OutboxRow
from tests.factories.cluster import Site, fresh, role, spec
from tests.people import NOW, People, Queues, make_queues


@pytest.fixture
def queues(people: People) -> Queues:
    return make_queues(people)


def test_submission_writes_everything_at_once(site: Site) -> None:
    """Job, roles, tasks, history, audit and a hint are there after the call."""
    job = site.submit(role("server"), role("client", 2, gpu_milli=500, memory_bytes=7))

    assert list(Role.objects.filter(job=job).values_list("name", "request")) == [
        ("server", {"cpu": 1000, "pods": 1000}),
        ("client", {"cpu": 1000, "memory": 7, "nvidia.com/gpu": 500, "pods": 1000}),
    ]
    assert Task.objects.filter(job=job, state="Pending").count() == 3
    assert (job.cpu_milli, job.gpu_milli, job.memory_bytes) == (3000, 1000, 14)
    assert History.objects.get(job=job).event == "submitted"
    assert AuditRow.objects.get(subject_id=str(job.id)).action == "job.create"
    assert OutboxRow.objects.filter(topic="live").exists()


def test_name_is_free_again_when_the_job_is_over(site: Site) -> None:
    """Two live jobs of a unit cannot have one name."""
    first = site.submit(name="train")
    with pytest.raises(Conflict) as caught:
        site.submit(name="train")
    assert caught.value.code == "job_name_taken"
    assert Job.objects.count() == 1

    jobs.cancel_job(actor=site.admin, job_id=first.id, now=site.now)

    assert site.submit(name="train").id != first.id


@pytest.mark.parametrize(
    ("change", "code"),
    [({"state": "Closed"}, "queue_closed"), ({"state": "Unknown"}, "queue_closed")],
)
def test_closed_queue_takes_no_jobs(site: Site, change: dict[str, str], code: str) -> None:
    """A queue that is not open refuses with its state, and nothing is written."""
    Queue.objects.filter(id=site.queue.id).update(**change)

    with pytest.raises(Invalid) as caught:
        site.submit()

    assert [(p.path, p.code) for p in caught.value.problems] == [("queue", code)]
    assert not Job.objects.exists()


def test_group_of_queues_takes_no_jobs(people: People, queues: Queues) -> None:
    """A queue with queues below it, and the root, refuse."""
    actor = people.actor(people.alice)
    for queue in (queues.lab, queues.root):
        with pytest.raises((Invalid, NotFound)):
            jobs.submit_job(actor=actor, spec=spec(), queue=queue, now=NOW)

    assert not Job.objects.exists()


def test_foreign_queue_does_not_exist(people: People, queues: Queues) -> None:
    """A researcher submits in the own department; another tenant's queue is like none."""
    bob = people.actor(people.bob)
    assert jobs.submit_job(actor=bob, spec=spec(queue="robots"), now=NOW).queue == queues.robots

    with pytest.raises(Invalid) as foreign:
        jobs.submit_job(actor=bob, spec=spec(queue="mill"), now=NOW)
    with pytest.raises(Invalid) as missing:
        jobs.submit_job(actor=bob, spec=spec(queue="no-such"), now=NOW)

    assert [p.code for p in foreign.value.problems] == ["queue_missing"]
    assert [p.code for p in missing.value.problems] == ["queue_missing"]


def test_others_cannot_touch_a_job(people: People, queues: Queues) -> None:
    """Bob's job is invisible to Charlie; Alice administers it; Bob cannot cancel Alice's."""
    bobs = jobs.submit_job(actor=people.actor(people.bob), spec=spec(queue="robots"), now=NOW)
    alices = jobs.submit_job(actor=people.actor(people.alice), spec=spec(queue="robots"), now=NOW)

    with pytest.raises(NotFound):
        jobs.cancel_job(actor=people.actor(people.charlie), job_id=bobs.id, now=NOW)
    with pytest.raises(Denied):
        jobs.cancel_job(actor=people.actor(people.bob), job_id=alices.id, now=NOW)
    jobs.cancel_job(actor=people.actor(people.alice), job_id=bobs.id, now=NOW, reason="too big")

    assert fresh(bobs).phase == "Terminated"
    assert fresh(alices).phase == "Pending"
    assert AuditRow.objects.get(action="job.cancel").reason == "too big"


def test_priority_above_normal_needs_the_right(people: People, queues: Queues) -> None:
    """A researcher cannot put the own job before others."""
    del queues
    with pytest.raises(Denied):
        jobs.submit_job(
            actor=people.actor(people.bob), spec=spec(queue="robots", priority=10), now=NOW
        )
    job = jobs.submit_job(
        actor=people.actor(people.alice), spec=spec(queue="robots", priority_class="high"), now=NOW
    )
    assert job.priority == 100

    jobs.change_priority(actor=people.actor(people.alice), job_id=job.id, priority=5, now=NOW)

    assert fresh(job).priority == 5


def test_bulk_says_how_each_job_ended(site: Site) -> None:
    """One refusal keeps no other job back, and each has its own answer."""
    waiting, over = site.submit(), site.submit()
    jobs.cancel_job(actor=site.admin, job_id=over.id, now=site.now)
    unknown = uuid4()

    results = jobs.bulk(
        actor=site.admin,
        action=JobAction.CANCEL,
        job_ids=[waiting.id, over.id, unknown, waiting.id],
        now=site.now,
    )

    assert [(r.job_id, type(r.error)) for r in results] == [
        (waiting.id, type(None)),
        (over.id, Conflict),
        (unknown, NotFound),
    ]
    assert fresh(waiting).phase == "Terminated"


def test_clone_is_what_was_submitted(site: Site) -> None:
    """A job's spec comes back as it went in."""
    given = spec(role("a", 2, env={"X": "1"}), name="first", max_retry=7)

    job = jobs.submit_job(actor=site.admin, spec=given, queue=site.queue, now=site.now)

    assert jobs.clone_spec(fresh(job)) == given


def test_scale_keeps_to_the_minimum(site: Site) -> None:
    """Fewer replicas than must start together are refused with the numbers."""
    job = site.submit(role(replicas=3, min_available=2), min_available=2)

    with pytest.raises(Invalid) as caught:
        jobs.scale_role(actor=site.admin, job_id=job.id, role="worker", replicas=1, now=site.now)

    assert [p.code for p in caught.value.problems] == ["replicas_out_of_range", "not_enough_tasks"]
    assert fresh(job).tasks_total == 3
