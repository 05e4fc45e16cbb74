"""The state that a plan leaves behind."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduling.engine.after import apply_plan
from scheduling.engine.types import (
    GPU,
    Binding,
    DisruptionBudget,
    Eviction,
    GangPhase,
    Plan,
    Quota,
    TaskState,
)
from scheduling.simulator.state import release
from tests.scenarios import cycle, read


def test_applied_binds_run_and_victims_are_stopped() -> None:
    """Bound tasks run where they were placed, evicted ones release, and then wait again."""
    outcome = cycle("""
        nodes  n1: gpu=4 devices
        queue  q:
        job    q/old: 4 x gpu=1 min=1 running n1*4 phase=Running
        job    q/new: 2 x gpu=1
    """)

    after = apply_plan(outcome.snapshot, outcome.plan)

    states = {t.key: t.state for job in after.jobs for t in job.tasks}
    assert states["q/old-3"] is TaskState.RELEASING
    assert after.reservations == outcome.plan.reservations
    assert after.jobs[1].phase is GangPhase.INQUEUE
    freed = {t.key: (t.state, t.node) for job in release(after).jobs for t in job.tasks}
    assert freed["q/old-3"] == (TaskState.PENDING, None)


def test_jobs_that_did_not_change_stay_the_same_objects() -> None:
    """What no plan touches keeps its identity, by which caches know it."""
    outcome = cycle(
        "nodes n1: gpu=1\nqueue q:\njob q/a: 1 x gpu=1\njob q/b: 1 x gpu=9 phase=Inqueue"
    )

    after = apply_plan(outcome.snapshot, outcome.plan)

    assert after.jobs[1] is outcome.snapshot.jobs[1]


def test_budgets_are_used_up_until_the_victims_are_gone() -> None:
    """Of two evicted tasks one counts against the budget; once it is gone another one may go."""
    snapshot = read("nodes n1: gpu=2\nqueue q:\njob q/a: 1 x gpu=1 running n1\n"
                    "job q/b: 1 x gpu=1 running n1")  # fmt: skip
    first = replace(snapshot.jobs[0].roles[0], labels={"kind": "frail"})
    jobs = (replace(snapshot.jobs[0], roles=(first,)), snapshot.jobs[1])
    budgets = (DisruptionBudget("frail", {"kind": "frail"}, 1),)
    snapshot = replace(snapshot, jobs=jobs, disruption_budgets=budgets)
    gone = tuple(Eviction(f"q/{x}-0", f"q/{x}", "n1", "preempt") for x in "ab")

    after = apply_plan(snapshot, Plan(evictions=gone))

    assert after.disruption_budgets[0].disruptions_allowed == 0
    assert release(after).disruption_budgets == budgets


def test_quotas_of_namespaces_count_who_was_let_in() -> None:
    """A quota's used amount grows by the minimum of a job that was admitted; others do not."""
    snapshot = read("nodes n1: gpu=2\nqueue ns:\njob ns/a: 1 x gpu=1\njob ns/b: 1 x gpu=1")
    jobs = tuple(replace(job, min_resources={GPU: 1000}) for job in snapshot.jobs)
    quotas = (
        Quota("q", "ns", {GPU: 3000}, {GPU: 500}),
        Quota("o", "other", {GPU: 1}),
        Quota("wall", "", {GPU: 1}, queues=frozenset({"ns"})),
    )
    snapshot = replace(snapshot, jobs=jobs, quotas=quotas)

    after = apply_plan(snapshot, Plan(phases={"ns/a": GangPhase.INQUEUE}))

    assert [dict(quota.used) for quota in after.quotas] == [{GPU: 1500}, {}, {}]


@pytest.mark.parametrize(("bound", "phase"), [(1, GangPhase.UNKNOWN), (2, GangPhase.RUNNING)])
def test_a_gang_that_is_not_whole_yet_does_not_count_as_running(
    bound: int, phase: GangPhase
) -> None:
    """What lacks of a gang's minimum, such as best-effort tasks that nobody places, shows."""
    snapshot = read("nodes n1: gpu=2\nqueue q:\njob q/a: 2 x gpu=1 min=2")
    binds = tuple(Binding(f"q/a-{i}", "q/a", "n1") for i in range(bound))

    assert apply_plan(snapshot, Plan(binds=binds)).jobs[0].phase is phase
