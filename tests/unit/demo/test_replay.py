"""What the demo makes of the queues that it reads: who was owed how much, in whole jobs."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from controlplane.demo import replay
from controlplane.demo.organisation import Fleet, tenants
from controlplane.demo.traces import VirtualCluster
from scheduling.engine.types import GPU
from scheduling.spec.org_file import UnitEntry

AT = "2026-11-21T20:00:01+00:00"
BEFORE, AFTER = "2026-11-21T20:00:00+00:00", "2026-11-21T20:00:02+00:00"


def row(name: str, parent: str | None, requested: int, allocated: int = 0) -> dict[str, Any]:
    """Return a queue as the API lists it; amounts in GPUs."""
    return {
        "id": name,
        "name": name,
        "parent_id": parent,
        "weight": 1,
        "min": {},
        "max": {},
        "requested": {GPU: 1000 * requested},
        "allocated": {GPU: 1000 * allocated},
        "deserved": {GPU: 0},
        "share_at": AT,
        "is_leaf": parent is not None,
    }


def job(queue: str, gpus: int, tasks: int, *, started: int = 0, at: str = BEFORE) -> dict[str, Any]:
    return {
        "queue": queue,
        "gpu_milli": 1000 * gpus,
        "created_at": at,
        "tasks": {"total": tasks, "pending": tasks - started},
    }


def owed(*jobs: dict[str, Any], allocated: int = 2) -> int:
    """Return what the first of two busy queues of equal weight is owed of 16 GPUs, in tasks."""
    rows = [row("root", None, 60), row("a", "root", 30, allocated), row("b", "root", 30, 8)]
    cycle = replay.cycle_of(rows, 16_000)
    assert cycle is not None
    return cycle.with_waiting(jobs).shares[0].owed_tasks


def test_job_that_is_due_and_waits_counts_with_all_its_tasks() -> None:
    """Of 6 GPUs that are due, jobs of 1, 4 and 4 GPUs could have had 5: three tasks."""
    assert owed(job("a", 4, 2), job("a", 1, 1), job("a", 4, 2)) == 3


def test_job_larger_than_what_is_due_is_no_difference() -> None:
    """A gang starts as a whole, so a queue may hold less than its share and be owed nothing."""
    assert owed(job("a", 8, 1)) == 0


def test_jobs_of_others_of_later_and_begun_ones_do_not_count() -> None:
    """Only what waited in this queue when the cycle was planned."""
    assert owed(job("b", 1, 1), job("a", 1, 1, at=AFTER), job("a", 2, 2, started=2)) == 0


def test_queue_above_its_share_is_owed_nothing() -> None:
    """What it holds beyond its share is lent; its waiting jobs are not due."""
    assert owed(job("a", 1, 1), allocated=9) == 0


def test_report_has_the_worst_difference_and_each_cycle() -> None:
    """The figure is the largest of all backlogged queues; the lines name every queue."""
    rows = [row("root", None, 60), row("a", "root", 30, 2), row("b", "root", 30, 8)]
    cycle = replay.cycle_of(rows, 16_000)
    assert cycle is not None
    lines: list[str] = []

    found = replay.fairness([cycle.with_waiting([job("a", 1, 1), job("a", 1, 1)])], lines.append)

    assert (found["worst_difference_tasks"], found["worst"]["queue"]) == (2, "a")
    assert (found["cycles"], found["without_difference"]) == (1, 1)
    assert found["worst_difference_held_gpus"] == 6
    assert len(lines) == 1


def test_nothing_is_a_cycle_while_all_that_is_asked_for_is_there() -> None:
    """Without a shortage there is nothing to divide."""
    assert replay.cycle_of([row("root", None, 3), row("a", "root", 3)], 16_000) is None


def test_mins_add_up_and_no_part_may_hold_everything() -> None:
    """A unit's min is the sum below it, all of them fit the fleet, and the largest job fits."""
    clusters = [VirtualCluster(f"c{number}", 10 + number) for number in range(7)]

    def check(unit: UnitEntry) -> int:
        assert unit.queue is not None
        least = (unit.queue.min or {})[GPU]
        below = sum(check(one) for one in unit.units)
        assert not unit.units or least == below
        if unit.queue.max:
            assert Fraction(unit.queue.max[GPU], 1000) >= 24
        return least

    company, startup = tenants(clusters, Fleet(gpus=40, largest_job=24))

    assert check(company) + check(startup) <= 40_000
    assert ((company.queue and company.queue.max) or {})[GPU] == 36_000
    assert [one.queue and one.queue.max for one in company.units] == [{GPU: 24_000}] * 3
