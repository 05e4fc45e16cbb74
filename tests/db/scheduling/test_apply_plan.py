"""A plan becomes true for whole gangs, re-checked against the rows, under the lease's epoch."""

from __future__ import annotations

import pytest

from scheduling.domain import apply_plan, jobs, leases, nodes, plan_words
from scheduling.domain.errors import LeaseLostError
from scheduling.engine.types import Binding, Eviction, Plan, Reason, Reservation
from scheduling.models import (
    Attempt,
    DeviceHold,
    Hold,
    Job,
    Lease,
    Node,
    Queue,
    QueueShare,
    Task,
)
from scheduling.models import (
    Reservation as ReservationRow,
)
from tenants.models import OutboxRow
from tests.factories.cluster import Site, fresh, role


def apply(site: Site, plan: Plan, epoch: int | None = None) -> apply_plan.Applied:
    snapshot = site.cache.refresh(site.cluster.id, site.now)
    return apply_plan.apply(
        plan,
        cluster_id=site.cluster.id,
        scope=site.scope,
        epoch=site.epoch if epoch is None else epoch,
        snapshot=snapshot,
        now=site.now,
    )


def test_gang_is_bound_with_holds_devices_and_commands(site: Site) -> None:
    """A bind writes an attempt, its hold and device, and one command for its node."""
    node = site.node(gpus=4)
    job = site.submit(role(replicas=4, gpu_milli=1000))

    applied = site.cycle()

    assert (applied.binds, applied.rejected) == (4, [])
    assert [a.epoch for a in site.live(job)] == [site.epoch] * 4
    assert DeviceHold.objects.filter(released_at__isnull=True, is_whole=True).count() == 4
    holds = Hold.objects.filter(attempt__job=job).values_list("cpu_milli", "gpu_milli", "queue")
    assert list(holds) == [(1000, 1000, site.queue.id)] * 4
    commands = OutboxRow.objects.filter(node=node.id, topic="attempt.launch")
    assert sorted(commands.values_list("key", flat=True)) == sorted(
        str(a.id) for a in site.live(job)
    )


def test_two_gangs_never_deadlock(site: Site) -> None:
    """Of two jobs of four GPUs on four GPUs one runs whole and the other waits whole."""
    site.node(gpus=4)
    first = site.submit(role(replicas=4, gpu_milli=1000))
    site.later(1)
    second = site.submit(role(replicas=4, gpu_milli=1000))

    site.cycle()
    site.cycle()

    assert (len(site.live(first)), len(site.live(second))) == (4, 0)
    waiting = fresh(second)
    assert waiting.reason_code == "gang_incomplete"
    assert waiting.reason_params["placeable"] == 0


def test_superseded_epoch_writes_nothing(site: Site) -> None:
    """A holder whose lease was taken meanwhile is refused inside the transaction."""
    site.node()
    job = site.submit()
    plan = site.plan()
    Lease.objects.update(expires_at=site.now)
    assert leases.acquire(scope=site.scope, holder="other", ttl_seconds=60) == site.epoch + 1

    with pytest.raises(LeaseLostError):
        apply(site, plan)

    assert not Attempt.objects.filter(job=job).exists()
    assert not Hold.objects.exists()


def test_cordoned_node_rejects_the_whole_gang(site: Site) -> None:
    """If one of its nodes cannot take its task any more, none of a gang's tasks is bound."""
    one, two = site.node(cpu_milli=1250), site.node(cpu_milli=1250)
    job = site.submit(role(replicas=2))
    plan = site.plan()
    assert {bind.node for bind in plan.binds} == {one.name, two.name}
    nodes.cordon(actor=site.admin, node_id=one.id, now=site.now)

    applied = apply(site, plan)

    assert [(r.job, r.what) for r in applied.rejected] == [(str(job.id), "node")]
    assert applied.binds == 0
    assert site.live(job) == []


def test_one_job_is_rejected_and_the_other_stands(site: Site) -> None:
    """A job that was cancelled between plan and apply is left out; the others are bound."""
    site.node()
    gone, stays = site.submit(), site.submit()
    plan = site.plan()
    jobs.cancel_job(actor=site.admin, job_id=gone.id, now=site.now)

    applied = apply(site, plan)

    assert applied.binds == 1
    assert [(r.job, r.what) for r in applied.rejected] == [(str(gone.id), "phase")]
    assert len(site.live(stays)) == 1


def test_large_plan_is_applied_in_batches_of_whole_jobs(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However small the batches are, each gang is bound once and whole."""
    site.node()
    gangs = [site.submit(role(replicas=3)) for _ in range(4)]
    monkeypatch.setattr(apply_plan, "FIRST_BATCH_BINDS", 1)
    monkeypatch.setattr(apply_plan, "BATCH_BINDS", 7)

    applied = site.cycle()

    assert (applied.binds, applied.rejected) == (12, [])
    assert [len(site.live(gang)) for gang in gangs] == [3, 3, 3, 3]


def test_queue_max_is_checked_again(site: Site) -> None:
    """A max that was lowered after the plan was made keeps the gang out, at any level."""
    site.node()
    job = site.submit(role(replicas=2))
    plan = site.plan()
    Queue.objects.filter(id=site.root.id).update(max={"cpu": 1500})

    applied = apply(site, plan)

    assert [(r.job, r.what) for r in applied.rejected] == [(str(job.id), "queue")]


def test_second_application_binds_nothing_again(site: Site) -> None:
    """A plan that is applied twice has its effect once."""
    site.node()
    job = site.submit()
    plan = site.plan()
    apply(site, plan)

    again = apply(site, plan)

    assert [(r.job, r.what) for r in again.rejected] == [(str(job.id), "task")]
    assert Attempt.objects.filter(job=job).count() == 1


def test_device_is_not_given_twice(site: Site) -> None:
    """Two binds to one device are refused, even if the plan says so."""
    node = site.node(gpus=2)
    job = site.submit(role(replicas=2, gpu_milli=1000))
    first, second = Task.objects.filter(job=job).order_by("id")
    device = str(Node.objects.get(id=node.id).devices.order_by("index")[0].id)
    binds = tuple(
        Binding(str(task.id), str(job.id), node.name, (device,)) for task in (first, second)
    )

    applied = apply(site, Plan(binds=binds))

    assert [r.what for r in applied.rejected] == ["node"]
    assert not DeviceHold.objects.exists()


def test_back_off_is_respected(site: Site) -> None:
    """A task whose back-off is not over is not bound."""
    node = site.node()
    job = site.submit()
    task = Task.objects.get(job=job)
    Task.objects.filter(id=task.id).update(not_before=site.later(60))
    site.now = site.later(-60)

    applied = apply(site, Plan(binds=(Binding(str(task.id), str(job.id), node.name),)))

    assert [r.what for r in applied.rejected] == ["task"]


def test_eviction_stops_with_its_reason(site: Site) -> None:
    """An evicted task is stopped for its beneficiary, waits again, and spends no retry."""
    site.node()
    victim = site.started()
    winner = site.submit()
    (attempt,) = site.live(victim)
    eviction = Eviction(
        str(attempt.task_id), str(victim.id), "-", "reclaim", beneficiary=str(winner.id)
    )

    applied = apply(site, Plan(evictions=(eviction,)))
    assert applied.evictions == 1
    attempt.refresh_from_db()
    assert (attempt.state, attempt.stop_reason) == ("Stopping", "reclaimed")
    assert attempt.evicted_for_id == winner.id
    site.exited(attempt, code=143)

    attempt.refresh_from_db()
    assert attempt.state == "Evicted"
    assert Task.objects.get(job=victim).state == "Pending"
    assert fresh(victim).retry_count == 0


def test_reasons_shares_and_reservations_are_kept(site: Site) -> None:
    """What a plan says besides binds is written, and a reservation that is given up goes."""
    job = site.submit()
    plan = Plan(
        job_reasons={str(job.id): Reason("nodes_unfit", {"nodes": 3, "histogram": {"taint": 3}})},
        reservations=(
            Reservation(str(job.id), {"n": {"cpu": 5}}, expires_at=site.now.timestamp() + 60),
        ),
    )

    apply(site, plan)
    row = Job.objects.get(id=job.id)
    assert (row.reason_code, row.reason_params["nodes"]) == ("nodes_unfit", 3)
    assert ReservationRow.objects.get(job=job).amounts_by_node == {"n": {"cpu": 5}}
    apply(site, Plan())

    assert not ReservationRow.objects.exists()
    assert Job.objects.get(id=job.id).version == row.version


def test_shares_follow_what_is_held(site: Site) -> None:
    """After a bind the next cycle writes what the queue holds."""
    site.node()
    site.started(role(replicas=2))

    site.cycle()

    assert QueueShare.objects.get(queue=site.queue).allocated["cpu"] == 2000


def test_ports_of_one_machine_do_not_meet(site: Site) -> None:
    """Tasks that listen for one another get different ports where their nodes share an address."""
    site.node(), site.node()
    job = site.started(role("master"), role("worker", 3), plugins={"pytorch": {}, "svc": {}})

    numbers = [attempt.ports["rendezvous"] for attempt in site.live(job)]

    assert len(set(numbers)) == 4


def test_a_number_that_is_free_again_is_not_the_next_one(site: Site) -> None:
    """Jobs that follow one another get other ports, so that a stranger on one costs one attempt."""
    site.node()
    seen = set()
    for _ in range(4):
        job = site.started(role("master"), plugins={"pytorch": {}, "svc": {}})
        (attempt,) = site.live(job)
        seen.add(attempt.ports["rendezvous"])
        site.exited(attempt)

    assert len(seen) > 1


def test_reason_is_told_once_and_again_when_its_numbers_are_old(site: Site) -> None:
    """An unchanged reason touches no row; new numbers are written after some seconds."""
    job = site.submit()
    told = plan_words.Told()

    def say(placeable: int) -> int:
        plan = Plan(job_reasons={str(job.id): Reason("gang_incomplete", {"placeable": placeable})})
        apply_plan.apply(
            plan,
            cluster_id=site.cluster.id,
            scope=site.scope,
            epoch=site.epoch,
            snapshot=site.cache.refresh(site.cluster.id, site.now),
            now=site.now,
            told=told,
        )
        return int(fresh(job).reason_params["placeable"])

    assert say(1) == 1
    before = fresh(job).changed_xid
    assert say(1) == 1
    assert fresh(job).changed_xid == before
    assert say(2) == 1
    site.later(plan_words.REASON_REFRESH_SECONDS)
    assert say(3) == 3


def test_reason_is_told_anew_after_the_job_changed(site: Site) -> None:
    """A job that was resumed has its reason again, though it is the same as before."""
    job = site.submit(role(gpu_milli=1000))
    told = plan_words.Told(site.cache.versions)

    def cycle_once() -> str:
        plan = site.plan()
        assert site.cache.snapshot is not None
        apply_plan.apply(
            plan,
            cluster_id=site.cluster.id,
            scope=site.scope,
            epoch=site.epoch,
            snapshot=site.cache.snapshot,
            now=site.now,
            told=told,
        )
        return fresh(job).reason_code

    before = cycle_once()
    assert before
    jobs.suspend_job(actor=site.admin, job_id=job.id, now=site.now)
    jobs.resume_job(actor=site.admin, job_id=job.id, now=site.now)
    assert fresh(job).reason_code == ""

    assert cycle_once() == before
