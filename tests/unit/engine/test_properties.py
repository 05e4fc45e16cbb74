"""What holds for every cluster, tree and set of jobs: random ones, planned and carried out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from scheduling.engine.after import apply_plan
from scheduling.engine.cycle import DEFAULT_CONFIG, Memo, plan
from scheduling.engine.types import Plan, Snapshot
from scheduling.engine.verify import check
from scheduling.simulator.state import release
from tests.random_clusters import clusters

T = TypeVar("T")

FACTOR = int(os.environ.get("TERRACE_PROPERTIES", "1"))
"""`make properties` tries so many times as many examples."""


def examples(count: int) -> settings:
    """Return settings for so many examples."""
    return settings(
        max_examples=count * FACTOR,
        deadline=None,
        print_blob=True,
        derandomize=FACTOR == 1,  # CI tries the same ones each time, make properties others
        suppress_health_check=[HealthCheck.too_slow],
        phases=[
            Phase.explicit,
            Phase.reuse,
            Phase.generate,
        ],  # shrinking takes minutes; turn it on to debug
    )


few = examples(20)


@examples(70)
@given(clusters())
def test_every_plan_passes_the_verifier(snapshot: Snapshot) -> None:
    """No room, max, gang, device, neighbour or victim rule is broken in two cycles in a row."""
    for _ in range(2):
        result = plan(snapshot, DEFAULT_CONFIG)
        assert check(snapshot, result) == []
        snapshot = replace(release(apply_plan(snapshot, result)), now=snapshot.now + 1)


@few
@given(clusters(), st.randoms(use_true_random=False))
def test_order_of_the_input_does_not_matter(snapshot: Snapshot, random: object) -> None:
    """Nodes, their devices, queues, jobs, their tasks and reservations, shuffled: one plan."""

    def shuffled(values: Sequence[T]) -> tuple[T, ...]:
        mixed = list(values)
        random.shuffle(mixed)  # type: ignore[attr-defined]  # Hypothesis types it as object
        return tuple(mixed)

    for _ in range(2):
        other = replace(
            snapshot,
            nodes=shuffled([replace(n, devices=shuffled(n.devices)) for n in snapshot.nodes]),
            queues=shuffled(snapshot.queues),
            jobs=shuffled([replace(j, tasks=shuffled(j.tasks)) for j in snapshot.jobs]),
            reservations=shuffled(snapshot.reservations),
        )
        expected = plan(snapshot, DEFAULT_CONFIG)
        assert _in_order(plan(other, DEFAULT_CONFIG)) == _in_order(expected)
        snapshot = replace(apply_plan(snapshot, expected), now=snapshot.now + 1)


def _in_order(result: Plan) -> Plan:
    return replace(
        result,
        job_reasons=dict(sorted(result.job_reasons.items())),
        phases=dict(sorted(result.phases.items())),
    )


@few
@given(clusters())
def test_memo_never_changes_a_plan(snapshot: Snapshot) -> None:
    """With what was kept from earlier cycles the plan is the same as without."""
    memo = Memo()
    for _ in range(4):
        with_memo = plan(snapshot, DEFAULT_CONFIG, memo=memo)
        assert _in_order(with_memo) == _in_order(plan(snapshot, DEFAULT_CONFIG))
        snapshot = replace(release(apply_plan(snapshot, with_memo)), now=snapshot.now + 1)


@examples(8)
@given(clusters())
def test_evictions_end(snapshot: Snapshot) -> None:
    """Left alone, a cluster comes to rest: no queue takes back for ever."""
    for _ in range(25):
        result = plan(snapshot, DEFAULT_CONFIG)
        snapshot = replace(release(apply_plan(snapshot, result)), now=snapshot.now + 0.01)

    assert plan(snapshot, DEFAULT_CONFIG).evictions == ()
