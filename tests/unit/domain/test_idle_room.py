"""A gang that no idle cluster holds is told so, and no other one."""

from __future__ import annotations

import pytest

from scheduling.domain.queries.idle_room import tasks_held, with_idle_room
from scheduling.engine.explain import Ladder, told
from scheduling.engine.reasons import ReasonCode
from scheduling.engine.types import Job, Node, Reason, Role, Snapshot

GPU = "nvidia.com/gpu"
NODES = tuple(Node(f"n{i}", {"cpu": 64_000, GPU: gpus * 1000}) for i, gpus in enumerate((8, 8, 4)))


@pytest.mark.parametrize(
    ("requests", "held"),
    [
        ([{"cpu": 1000, GPU: 4000}], 5),
        ([{"cpu": 32_000, GPU: 1000}], 6),
        ([{GPU: 8000}, {"cpu": 1000, GPU: 4000}], 5),
        ([{GPU: 16_000}], 0),
        ([{"memory": 1}], 0),
        ([{"cpu": 1000, GPU: 0}], 99),
    ],
)
def test_each_task_counts_as_the_least_that_a_role_asks_for(
    requests: list[dict[str, int]], held: int
) -> None:
    """So the number is never too small; it ends where there is enough."""
    roles = [Role(f"r{i}", request, 1, 1) for i, request in enumerate(requests)]

    assert tasks_held(NODES, roles, enough=99) == held


@pytest.mark.parametrize(
    ("least", "code", "room"),
    [
        (6, ReasonCode.GANG_INCOMPLETE, 5),
        (5, ReasonCode.GANG_INCOMPLETE, None),
        (6, ReasonCode.QUEUE_MAX, None),
    ],
)
def test_gang_is_told_where_waiting_does_not_help(
    least: int, code: ReasonCode, room: int | None
) -> None:
    """Only the gang's rung says it, only where the gang is what fails and is too large."""
    role = Role("worker", {GPU: 4000}, replicas=6, min_available=0)
    job = Job("j", "j", "q", (role,), (), min_available=least)
    snapshot = Snapshot(now=0.0, nodes=NODES, queues=(), jobs=(job,))
    ladder: Ladder = told("j", Reason(code, {}))

    found = with_idle_room(ladder, snapshot, job)

    assert {rung.name: rung.facts.get("idle_room") for rung in found.rungs if rung.facts} == (
        {} if room is None else {"gang": room}
    )
