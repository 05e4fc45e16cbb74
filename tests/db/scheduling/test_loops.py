"""The bodies of the loops, turned by hand: poison jobs, refused plans, hints, counters, records."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from time import monotonic

import pytest
import redis
from django.conf import settings
from django.db.models import Sum

from scheduling.domain import counters, cycles, jobs, leases, nodes, quarantine, topics
from scheduling.engine import cycle
from scheduling.engine.config import DEFAULT_CONFIG
from scheduling.engine.types import Job as EngineJob
from scheduling.engine.types import Plan, Snapshot
from scheduling.models import (
    Attempt,
    Cluster,
    CycleRecord,
    Job,
    JobCount,
    Lease,
    Queue,
    SchedulerConfig,
)
from tenants.domain import outbox
from tenants.models import AuditRow, AuditSeal, OutboxRow
from tests.factories.cluster import Site, fresh, role
from worker.loops.base import HeldLease
from worker.loops.reconcile import ReconcileLoop
from worker.loops.relay import RelayLoop
from worker.loops.scheduler import SchedulerLoop


def held(scope: str, epoch: int) -> HeldLease:
    return HeldLease(scope, "test", epoch, 600.0, monotonic())


@pytest.fixture
def scheduler(site: Site) -> Iterator[SchedulerLoop]:
    """The scheduler loop of the site, under the lease that the site took."""
    loop = SchedulerLoop(site.cluster.id)
    loop.begin(held(site.scope, site.epoch))
    yield loop
    loop.end()


def turn(site: Site, loop: SchedulerLoop) -> None:
    loop.turn(held(site.scope, site.epoch))


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the engine fail on jobs named `poison`, as one with a bug would."""
    whole = cycle.plan

    def plan(snapshot: Snapshot, *args: object, **kwargs: object) -> Plan:
        if any(job.name == "poison" for job in snapshot.jobs):
            raise ZeroDivisionError("a bug")
        return whole(snapshot, *args, **kwargs)  # type: ignore[arg-type]  # passed through

    monkeypatch.setattr(cycle, "plan", plan)


@pytest.mark.usefixtures("poisoned")
def test_poison_job_is_set_aside_and_the_others_go_on(site: Site, scheduler: SchedulerLoop) -> None:
    """Each failing cycle places the sound jobs; after three strikes the job is left out."""
    site.node()
    sound = [site.submit() for _ in range(5)]
    poison = site.submit(name="poison")

    turn(site, scheduler)
    assert Attempt.objects.filter(job__in=sound).count() == 5
    assert fresh(poison).quarantine_strikes == 1
    assert CycleRecord.objects.latest("number").error == "ZeroDivisionError: a bug"
    for _ in range(4):
        turn(site, scheduler)

    row = fresh(poison)
    assert (row.quarantine_strikes, row.reason_code) == (3, "quarantined")
    assert row.reason_params["error"] == "ZeroDivisionError: a bug"
    jobs.cancel_job(actor=site.admin, job_id=poison.id, now=site.now)
    assert fresh(poison).phase == "Terminated"


def test_unreadable_rows_of_a_job_are_set_aside(site: Site, scheduler: SchedulerLoop) -> None:
    """A job whose spec cannot be read gets its strikes; the first cycle places the others."""
    site.node()
    runs = site.started()
    waits, sound = site.submit(), site.submit()
    Job.objects.filter(id__in=[runs.id, waits.id]).update(spec={"roles": "none"})

    turn(site, scheduler)
    assert len(site.live(sound)) == 1
    for _ in range(4):
        turn(site, scheduler)

    assert fresh(waits).quarantine_strikes == fresh(runs).quarantine_strikes == 3
    assert fresh(waits).reason_code == "quarantined"
    assert len(site.live(runs)) == 1


def test_refused_plan_is_not_applied(
    site: Site, scheduler: SchedulerLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan that the independent check refuses changes nothing and is shown."""
    node = site.node()
    job = site.submit()
    whole = cycle.plan

    def twice(snapshot: Snapshot, *args: object, **kwargs: object) -> Plan:
        plan = whole(snapshot, *args, **kwargs)  # type: ignore[arg-type]  # passed through
        return replace(plan, binds=plan.binds * 2)

    monkeypatch.setattr(cycle, "plan", twice)
    turn(site, scheduler)

    assert site.live(job) == []
    assert CycleRecord.objects.latest("number").error.startswith("plan refused")
    del node


def test_refused_job_does_not_keep_the_others_waiting(
    site: Site, scheduler: SchedulerLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the check refuses is left out, its gang whole; after three strikes it is set aside."""
    site.node()
    sound = site.submit()
    bad = site.submit(role(replicas=2), name="bad")
    whole = cycle.plan

    def twice(snapshot: Snapshot, *args: object, **kwargs: object) -> Plan:
        plan = whole(snapshot, *args, **kwargs)  # type: ignore[arg-type]  # passed through
        more = tuple(one for one in plan.binds if one.job == str(bad.id))[:1]
        return replace(plan, binds=(*plan.binds, *more))

    monkeypatch.setattr(cycle, "plan", twice)
    turn(site, scheduler)

    assert (len(site.live(sound)), site.live(bad)) == (1, [])
    record = CycleRecord.objects.latest("number")
    assert (record.binds, record.rejected) == (1, 1)
    assert record.error.startswith("plan refused: bound_twice")
    row = fresh(bad)
    assert (row.quarantine_strikes, row.reason_code) == (1, "quarantined")
    assert row.reason_params == {
        "error": "plan refused: bound_twice",
        "strikes": 1,
        "most": 3,
    }

    for _ in range(4):
        turn(site, scheduler)

    assert fresh(bad).quarantine_strikes == 3
    assert CycleRecord.objects.latest("number").error == ""


def some_jobs(site: Site, count: int) -> tuple[EngineJob, ...]:
    for _ in range(count):
        site.submit()
    return site.cache.refresh(site.cluster.id, site.now).jobs


def test_poison_is_found_by_halving(site: Site) -> None:
    """Of many jobs the guilty one is found; where no single one is to blame, none is named."""
    many = some_jobs(site, 9)
    guilty = many[6]

    assert quarantine.find(many, lambda some: guilty not in some) is guilty
    assert quarantine.find(many, lambda _: True) is None
    assert quarantine.find(many, lambda some: len(some) < 9) is None


def test_failure_without_any_job_blames_nobody(
    site: Site, scheduler: SchedulerLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When planning fails whatever the jobs are, the error comes out and no job is struck."""

    def plan(*_: object, **__: object) -> Plan:
        raise ZeroDivisionError("the engine itself")

    job = site.submit()
    monkeypatch.setattr(cycle, "plan", plan)

    with pytest.raises(ZeroDivisionError):
        turn(site, scheduler)

    assert fresh(job).quarantine_strikes == 0


def test_what_was_read_ahead_is_brought_up_to_date(site: Site) -> None:
    """A loop that stood by plans what came, and nothing for what went, before it led."""
    node = site.node()
    gone = site.submit()
    loop = SchedulerLoop(site.cluster.id)
    loop.prepare()
    jobs.cancel_job(actor=site.admin, job_id=gone.id, now=site.now)
    came = site.submit()

    loop.begin(held(site.scope, site.epoch))
    turn(site, loop)
    loop.end()

    assert [attempt.node_id for attempt in site.live(came)] == [node.id]
    assert not Attempt.objects.filter(job=gone).exists()


def test_idle_cycles_are_one_row(site: Site, scheduler: SchedulerLoop) -> None:
    """Cycles that change nothing are folded; one that binds has its own row."""
    for _ in range(3):
        turn(site, scheduler)
    assert CycleRecord.objects.count() == 1
    site.node()
    site.submit()

    turn(site, scheduler)

    assert list(CycleRecord.objects.order_by("number").values_list("binds", flat=True)) == [0, 1]
    assert Lease.objects.get(scope=site.scope).detail["cycle"] == 2


def test_wrong_configuration_is_reported_and_the_last_valid_one_stays(site: Site) -> None:
    """A configuration that cannot be read is never in force."""
    configuration = cycles.Configuration(site.cluster.id)
    valid = configuration.current(site.scope, site.epoch)
    Cluster.objects.update(scheduler_config='actions: "fly"', version=2)

    current = configuration.current(site.scope, site.epoch)

    assert current == valid
    problem = Cluster.objects.get().config_problem
    assert problem.startswith("actions[0]: There is no action “fly”. There are: allocate, ")


def test_after_a_restart_the_last_good_version_is_in_force(site: Site) -> None:
    """Who never saw a good text takes the newest that can be read; a mend is told too."""
    for number, text in enumerate(('actions: "allocate"\ntiers: [{plugins: [{name: gang}]}]', "-")):
        SchedulerConfig.objects.create(
            cluster=site.cluster, number=number, text=text, created_at=site.now
        )
    Cluster.objects.update(scheduler_config='actions: "fly"', version=2)

    configuration = cycles.Configuration(site.cluster.id)
    started = configuration.current(site.scope, site.epoch)
    elsewhere = cycles.configuration_of(site.cluster.id)
    Cluster.objects.update(scheduler_config="", version=3)
    mended = configuration.current(site.scope, site.epoch)

    assert [action.name for action in started.actions] == ["allocate"]
    assert elsewhere == started
    assert mended == DEFAULT_CONFIG
    assert Cluster.objects.get().config_problem == ""


# --- relay ----------------------------------------------------------------------------------------


@pytest.fixture
def relay(site: Site) -> Iterator[tuple[RelayLoop, HeldLease]]:
    del site
    epoch = leases.acquire(scope="relay", holder="test", ttl_seconds=600)
    assert epoch is not None
    loop, lease = RelayLoop(), held("relay", epoch)
    loop.begin(lease)
    yield loop, lease
    loop.end()


def test_relay_publishes_hints_and_seals(site: Site, relay: tuple[RelayLoop, HeldLease]) -> None:
    """A change is heard on the live channel under its topic, and audit rows are sealed."""
    OutboxRow.objects.all().delete()
    client = redis.Redis.from_url(settings.REDIS_URL)
    ears = client.pubsub(ignore_subscribe_messages=True)
    ears.subscribe(topics.LIVE_CHANNEL)
    ears.get_message(timeout=5)
    job = site.submit()

    relay[0].turn(relay[1])

    heard = []
    while (message := ears.get_message(timeout=1)) is not None:
        heard.append(json.loads(message["data"]))
    ears.close()
    assert {(one["topic"], one["kind"]) for one in heard} == {
        (topics.job(job.id), "state"),
        (topics.jobs(site.queue.id), "state"),
    }
    assert not OutboxRow.objects.exists()
    assert AuditSeal.objects.count() == AuditRow.objects.count()


def test_message_that_nobody_takes_is_kept(site: Site, relay: tuple[RelayLoop, HeldLease]) -> None:
    """A topic without a receiver is tried again later and shows its error."""
    outbox.publish(topic="unheard", key="k", payload={}, now=site.now)

    relay[0].turn(relay[1])

    row = OutboxRow.objects.get(topic="unheard")
    assert row.last_error == "nobody takes the topic unheard"
    assert row.not_before > site.now


def test_folding_keeps_the_sums(site: Site) -> None:
    """Counts by queue and phase are the same before and after they are folded."""
    for _ in range(4):
        jobs.cancel_job(actor=site.admin, job_id=site.submit().id, now=site.now)

    def sums() -> list[tuple[str, int]]:
        rows = JobCount.objects.values_list("phase").annotate(n=Sum("amount")).exclude(n=0)
        return sorted(rows)

    before = sums()
    assert counters.fold(least=10)

    assert sums() == before == [("Terminated", 4)]
    assert JobCount.objects.count() == 1
    assert not counters.fold(least=10)


# --- reconcile ------------------------------------------------------------------------------------


def test_reconcile_gives_up_silent_nodes(site: Site) -> None:
    """A node that was silent for too long is given up, once the loop has watched for as long."""
    node = site.node()
    job = site.started()
    epoch = leases.acquire(scope="reconcile", holder="test", ttl_seconds=600)
    assert epoch is not None
    limit = nodes.silence_limit().total_seconds()
    readings = iter((0.0, limit - 0.1, limit))
    loop, lease = ReconcileLoop(lambda: next(readings)), held("reconcile", epoch)
    long_ago = site.now - timedelta(days=1)
    nodes.heartbeats(sessions=[(node.id, node.session_id)], now=long_ago)

    loop.turn(lease)
    assert [a.state for a in Attempt.objects.filter(job=job)] != ["Lost"]
    loop.turn(lease)

    assert [a.state for a in Attempt.objects.filter(job=job)] == ["Lost"]
    assert Lease.objects.get(scope="reconcile").detail["at"]
    assert Queue.objects.count() == 2
