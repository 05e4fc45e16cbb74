"""What users expect of gangs, elastic jobs and shares, seen on the running system by default."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.core.management import call_command
from pytest_django import DjangoDbBlocker

from scheduling.domain import clock, invariants, queues
from scheduling.domain.queue_changes import QueueEdit
from scheduling.domain.wording import sentence
from scheduling.engine.reasons import ReasonCode
from scheduling.models import Attempt, Job, Queue
from tests.process.whole_system import WholeSystem

pytestmark = pytest.mark.django_db(transaction=True)

GPU = "nvidia.com/gpu"
SMALL_JOBS = 50
SHAPE = "gpus={gpus},cpu=64,memory=512Gi"


@pytest.fixture(scope="module")
def running(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[WholeSystem]:
    del django_db_setup
    with django_db_blocker.unblock():
        try:
            with WholeSystem("--simulate", SHAPE.format(gpus=10)) as system:
                yield system
        finally:
            call_command("flush", verbosity=0, interactive=False)


@pytest.fixture
def _django_db_helper(running: WholeSystem) -> None:
    """Stand in for pytest-django's own, which empties the tables after every test."""
    del running


@pytest.fixture
def system(running: WholeSystem) -> Iterator[WholeSystem]:
    """The system with ten free GPUs, which a test leaves as it found it."""
    running.wait_for_gpus(10)
    yield running
    running.cancel_all()
    assert invariants.check() == []


@pytest.fixture
def with_four_gpus(system: WholeSystem) -> Iterator[WholeSystem]:
    """The same node, started again with fewer GPUs."""
    set_gpus(system, 4)
    yield system
    system.cancel_all()
    set_gpus(system, 10)


def set_gpus(system: WholeSystem, gpus: int) -> None:
    system.agent.kill()
    system.agent.simulate(SHAPE.format(gpus=gpus))
    system.agent.start()
    system.wait_for_gpus(gpus)


def gpus(count: int) -> dict[str, int]:
    return {GPU: 1000 * count}


def waits(job: Job, code: ReasonCode) -> Job | None:
    return Job.objects.filter(id=job.id, reason_code=code).first()


def set_weight(system: WholeSystem, queue: Queue, weight: int) -> None:
    edit = QueueEdit(queue_id=queue.id, expected_version=queue.version, weight=weight)
    queues.edit_queues(actor=system.installed.actor, edits=[edit], now=clock.database_now())


def test_two_gangs_never_deadlock(with_four_gpus: WholeSystem) -> None:
    """Of two jobs of four one-GPU workers one runs whole on four GPUs, then the other does."""
    system = with_four_gpus
    queue = system.tenant("gangs")

    with system.at_once():
        first, second = (system.submit(name, queue=queue, tasks=4) for name in ("one", "two"))
    system.wait_for_running({first: 4, second: 0})
    waiting = system.wait_for(lambda: waits(second, ReasonCode.GANG_INCOMPLETE))
    said = sentence(waiting.reason_code, waiting.reason_params)
    system.cancel(first)
    system.wait_for_running({second: 4})

    assert waiting.reason_params["placeable"] == 0
    assert waiting.reason_params["min_available"] == 4
    assert waiting.reason_params["histogram"] == {"Insufficient nvidia.com/gpu": 1}
    assert "4" in said
    assert Attempt.objects.filter(job__in=(first, second)).count() == 8


def test_equal_queues_halve_the_gpus_and_weights_move_the_shares(system: WholeSystem) -> None:
    """Two queues of weight 1 end at five GPUs each; at weights 4 and 1 they end at 8 and 2."""
    left, right = system.tenant("left"), system.tenant("right")

    one = system.submit("one", queue=left, tasks=10, at_least=1)
    system.wait_for_running({one: 10})
    two = system.submit("two", queue=right, tasks=10, at_least=1)
    system.wait_for_running({one: 5, two: 5})
    set_weight(system, left, 4)

    system.wait_for_running({one: 8, two: 2})


def test_elastic_jobs_submitted_together_share(system: WholeSystem) -> None:
    """Use case 1: both jobs of one queue get their minimum, and nobody is evicted for it."""
    queue = system.tenant("together")

    with system.at_once():
        one, two = (
            system.submit(name, queue=queue, tasks=10, at_least=5) for name in ("one", "two")
        )
    system.wait_for_running({one: 5, two: 5})

    assert Attempt.objects.filter(job__in=(one, two)).count() == 10


@pytest.mark.parametrize("is_same_queue", [True, False], ids=["same-queue", "other-queue"])
def test_elastic_job_gives_way(system: WholeSystem, *, is_same_queue: bool) -> None:
    """Use cases 2 and 3: five elastic tasks leave for the other job's minimum, and no more."""
    queue = system.tenant(f"gives-{is_same_queue}".lower())
    other = queue if is_same_queue else system.tenant("takes")

    one = system.submit("one", queue=queue, tasks=10, at_least=5)
    system.wait_for_running({one: 10})
    two = system.submit("two", queue=other, tasks=10, at_least=5)
    system.wait_for_running({one: 5, two: 5})

    assert Attempt.objects.filter(job=one).count() == 10
    assert Attempt.objects.filter(job=two).count() == 5
    assert Job.objects.filter(id__in=(one.id, two.id), phase="Running").count() == 2


def test_idle_share_of_a_team_is_lent_and_taken_back(system: WholeSystem) -> None:
    """Idle share goes up to the borrower's max, to siblings first, and back to who it is of."""
    lab = system.tenant("lab")
    vision = system.unit(lab, "vision", min=gpus(5))
    speech = system.unit(lab, "speech", min=gpus(5), weight=3)
    team = system.unit(vision, "detection", min=gpus(3))
    sibling = system.unit(vision, "tracking", min=gpus(2))
    stranger = system.unit(speech, "voices", max=gpus(8))

    far = system.submit("far", queue=stranger, tasks=10, at_least=1)
    system.wait_for_running({far: 8})
    near = system.submit("near", queue=sibling, tasks=10, at_least=1)
    system.wait_for_running({far: 5, near: 5})
    own = system.submit("own", queue=team, tasks=3)

    system.wait_for_running({far: 5, near: 2, own: 3})


def test_starved_big_job_starts_after_its_waiting_time(system: WholeSystem) -> None:
    """Small jobs pass a big one until its SLA waiting time is over; then it gets all GPUs."""
    queue = system.tenant("starved")
    waiting_seconds = 5.0

    before = [
        system.submit(f"before-{i}", queue=queue, tasks=1, seconds=1 + 0.7 * i) for i in range(10)
    ]
    system.wait_for(lambda: Attempt.objects.filter(job__in=before, state="Running").exists())
    with system.at_once():
        big = system.submit(
            "big", queue=queue, tasks=1, gpus=10, sla_waiting_seconds=waiting_seconds
        )
        after = [
            system.submit(f"after-{i}", queue=queue, tasks=1, seconds=2) for i in range(SMALL_JOBS)
        ]
    system.wait_for(lambda: waits(big, ReasonCode.RESERVED))
    system.wait_for_running({big: 1})

    big.refresh_from_db()
    small = Job.objects.filter(id__in=[job.id for job in after])
    assert big.started_at is not None
    assert (big.started_at - big.created_at).total_seconds() >= waiting_seconds
    assert small.filter(started_at__lt=big.started_at).exists()
    assert small.filter(started_at__isnull=True).exists()
