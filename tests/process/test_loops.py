"""The loops in real Celery workers: taken over, fenced off, and going on without Redis."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator

import pytest
import redis

from scheduling.domain import invariants, leases
from scheduling.domain.clock import database_now
from scheduling.domain.launches import scheduler_scope
from scheduling.models import Attempt, Job, Lease, Node
from scheduling.models.node import NodeState
from tests.process.fake_gateway import wait_for
from tests.process.gateway_process import Installed
from tests.process.loop_processes import Loops
from worker.app import LOOPS_QUEUE

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def installed() -> Installed:
    made = Installed()
    amounts = {"cpu": 64_000, "memory": 64 << 30, "pods": 110_000}
    Node.objects.create(
        cluster=made.installation.cluster,
        name="far-away",
        state=NodeState.READY,
        is_simulated=True,
        capacity=amounts,
        allocatable=amounts,
        created_at=made.now,
    )
    return made


@pytest.fixture
def loops(installed: Installed) -> Iterator[Loops]:
    del installed
    with Loops() as running:
        yield running


def scope_of(installed: Installed) -> str:
    return scheduler_scope(installed.installation.cluster.id)


def bound(job: Job) -> Attempt:
    """Wait until the loop has placed the job's only task."""
    return wait_for(lambda: Attempt.objects.filter(job=job).first(), 30)


def epoch(scope: str) -> int:
    return Lease.objects.get(scope=scope).epoch


def test_standby_takes_over_after_kill(
    installed: Installed, loops: Loops, record_property: Callable[[str, object], None]
) -> None:
    """After a kill -9 of a worker another schedules on under a new epoch, and nothing is lost."""
    scope = scope_of(installed)
    holder = loops.wait_until_ready(scope)
    first = bound(installed.submit("before", ["true"]))
    before = epoch(scope)

    holder.signal(signal.SIGKILL)
    killed_at = time.monotonic()
    wait_for(lambda: epoch(scope) > before, 30)
    record_property("taken_over_after_seconds", time.monotonic() - killed_at)
    second = bound(installed.submit("after", ["true"]))

    assert first.epoch == before
    assert second.epoch == before + 1
    assert invariants.check() == []


def test_worker_that_is_told_to_end_hands_over(installed: Installed) -> None:
    """After SIGTERM the standby leads at once, where a lease would run for minutes yet."""
    with Loops(TERRACE_LEASE_SECONDS="60") as loops:
        scope = scope_of(installed)
        holder = loops.wait_until_ready(scope)
        bound(installed.submit("before", ["true"]))
        before = Lease.objects.get(scope=scope)

        holder.process.terminate()
        wait_for(lambda: epoch(scope) > before.epoch, 40)
        second = bound(installed.submit("after", ["true"]))

    assert second.epoch == before.epoch + 1
    assert second.bound_at < before.expires_at


def test_standby_is_sent_to_two_workers(installed: Installed) -> None:
    """Each loop that lacks a standby is queued twice in a row: two workers get it, not one."""
    for scope in ("relay", "reconcile", scope_of(installed)):
        leases.acquire(scope=scope, holder="elsewhere", ttl_seconds=600)

    with Loops(workers=0) as loops:
        broker = redis.Redis.from_url(loops.redis.server.url)
        wait_for(lambda: broker.llen(LOOPS_QUEUE) >= 6, 60)
        queued = broker.lrange(LOOPS_QUEUE, -6, -1)

    tasks = [json.loads(one)["headers"]["task"] for one in reversed(queued)]
    assert tasks == [
        f"worker.loops.{name}" for name in ("relay", "reconcile", "schedule") for _ in range(2)
    ]


def test_paused_holder_writes_nothing_afterwards(installed: Installed, loops: Loops) -> None:
    """A worker paused for longer than its lease finds itself fenced off and steps down."""
    scope = scope_of(installed)
    holder = loops.wait_until_ready(scope)
    bound(installed.submit("before", ["true"]))
    before = epoch(scope)

    holder.signal(signal.SIGSTOP)
    wait_for(lambda: epoch(scope) > before, 30)
    holder.signal(signal.SIGCONT)
    wait_for(lambda: "loop_steps_down" in holder.log(), 30)
    second = bound(installed.submit("after", ["true"]))

    assert second.epoch == before + 1
    assert Attempt.objects.filter(epoch=before).count() == 1
    assert invariants.check() == []


def test_scheduling_goes_on_without_redis(installed: Installed) -> None:
    """With Redis gone, and the time to hand over long past, the same holder places jobs."""
    with Loops(TERRACE_HAND_OVER_SECONDS="5") as loops:
        scope = scope_of(installed)
        wait_for(lambda: loops.is_held(scope), 60)
        loops.redis.kill()
        wait_for(lambda: loops.holder(scope), 10)
        before = Lease.objects.get(scope=scope)
        began = database_now()

        wait_for(lambda: (database_now() - began).total_seconds() > 8, 20)
        attempt = bound(installed.submit("meanwhile", ["true"]))

        after = Lease.objects.get(scope=scope)
        assert (after.holder, after.epoch) == (before.holder, before.epoch)
        assert attempt.epoch == before.epoch

        loops.redis.start()
        wait_for(lambda: epoch(scope) > before.epoch, 40)
        late = bound(installed.submit("later", ["true"]))
        assert late.epoch > before.epoch


def test_without_a_worker_a_job_stays_queued(installed: Installed) -> None:
    """Nothing is scheduled in the process that submits: without loops a job just waits."""
    job = installed.submit("lonely", ["true"])

    assert Job.objects.get(id=job.id).phase == "Pending"
    assert not Attempt.objects.filter(job=job).exists()
    assert not Lease.objects.filter(scope=scope_of(installed)).exists()
