"""A submission and a change of its queue at the same moment: one waits and finds the other."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread

import pytest
from django.db import connection, transaction

from scheduling.domain import jobs, queues
from scheduling.models import Job, Queue
from tenants.domain.errors import Conflict, DomainError, Invalid
from tests.factories.cluster import role, spec
from tests.people import NOW, People, Queues, make_people, make_queues, make_unit

pytestmark = pytest.mark.django_db(transaction=True)

Act = Callable[[], object]

BLOCKED_BY_US = """
    SELECT EXISTS (
        SELECT 1 FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))
    )
"""


class Installation:
    """Two tenants with queues, and what people do to the leaf `robots`."""

    def __init__(self) -> None:
        self.people: People = make_people()
        self.queues: Queues = make_queues(self.people)
        self.arms = make_unit("arms", self.people.robots)
        self.robots = self.queues.robots

    def submit(self) -> Job:
        """Submit a job to the leaf, as Bob."""
        return jobs.submit_job(
            actor=self.people.actor(self.people.bob), spec=spec(role(), queue="robots"), now=NOW
        )

    def make_group(self) -> Queue:
        """Give the leaf a queue below it, as Alice."""
        return queues.create_queue(
            actor=self.people.actor(self.people.alice),
            parent_id=self.robots.id,
            unit_id=self.arms.id,
            name="arms",
            now=NOW,
        )

    def close(self) -> Queue:
        """Close the department above the leaf, as Root."""
        return queues.close_queue(
            actor=self.people.actor(self.people.root), queue_id=self.queues.vision.id, now=NOW
        )


@pytest.fixture
def site() -> Installation:
    return Installation()


def race(first: Act, second: Act) -> tuple[bool, DomainError | None]:
    """Do one thing, begin another before the first is committed; return what became of the other.

    The first item tells whether it had to wait; the second is its refusal, if it was refused.
    """
    refusals: list[DomainError] = []

    def do_second() -> None:
        try:
            second()
        except DomainError as refusal:
            refusals.append(refusal)
        finally:
            connection.close()

    thread = Thread(target=do_second)
    has_waited = False
    with transaction.atomic(), connection.cursor() as cursor:
        first()
        thread.start()
        while thread.is_alive() and not has_waited:
            cursor.execute(BLOCKED_BY_US)
            has_waited = cursor.fetchone() == (True,)
    thread.join()
    return has_waited, refusals[0] if refusals else None


def test_leaf_with_a_job_on_its_way_becomes_no_group(site: Installation) -> None:
    """Who gives a queue a child waits for a submission to it, and is refused for its job."""
    has_waited, refusal = race(site.submit, site.make_group)

    assert has_waited
    assert isinstance(refusal, Conflict)
    assert (refusal.code, refusal.params) == ("queue_has_jobs", {"queue": "robots", "jobs": 1})
    assert site.robots.children.count() == 0
    assert site.robots.jobs.count() == 1


def test_queue_that_becomes_a_group_takes_no_job(site: Installation) -> None:
    """Who submits waits for the queue's first child, and is told that it is a group."""
    has_waited, refusal = race(site.make_group, site.submit)

    assert has_waited
    assert isinstance(refusal, Invalid)
    assert [(one.path, one.code) for one in refusal.problems] == [("queue", "queue_not_leaf")]
    assert site.robots.children.count() == 1
    assert site.robots.jobs.count() == 0


def test_closing_counts_a_job_on_its_way(site: Installation) -> None:
    """A queue above that closes waits for a submission; the leaf is Closing, not Closed."""
    has_waited, refusal = race(site.submit, site.close)

    states = dict(Queue.objects.filter(id=site.robots.id).values_list("name", "state"))
    assert (has_waited, refusal) == (True, None)
    assert states == {"robots": "Closing"}


def test_closing_queue_takes_no_job(site: Installation) -> None:
    """Who submits waits for the closing, and is told the queue's state."""
    has_waited, refusal = race(site.close, site.submit)

    assert has_waited
    assert isinstance(refusal, Invalid)
    assert [(one.code, one.params["state"]) for one in refusal.problems] == [
        ("queue_closed", "Closed")
    ]
    assert site.robots.jobs.count() == 0


def test_submissions_do_not_wait_for_one_another(site: Installation) -> None:
    """Two people submit to one queue at the same time."""
    has_waited, refusal = race(site.submit, site.submit)

    assert (has_waited, refusal) == (False, None)
    assert site.robots.jobs.count() == 2


def test_queue_that_was_deleted_meanwhile(site: Installation) -> None:
    """A submission to a queue that is gone by now is told that there is none."""
    stale = Queue.objects.select_related("unit").get(id=site.robots.id)
    Queue.objects.filter(id=site.robots.id).delete()

    with pytest.raises(Invalid) as refused:
        jobs.submit_job(
            actor=site.people.actor(site.people.bob),
            spec=spec(role(), queue="robots"),
            queue=stale,
            now=NOW,
        )

    assert [(one.path, one.code) for one in refused.value.problems] == [("queue", "queue_missing")]
