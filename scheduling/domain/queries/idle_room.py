"""Whether a gang could start at all on the nodes that there are: waiting would not help it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from scheduling.engine.explain import Ladder
from scheduling.engine.reasons import ReasonCode
from scheduling.engine.types import Job, Node, Role, Snapshot

FACT = "idle_room"


def with_idle_room(ladder: Ladder, snapshot: Snapshot, job: Job) -> Ladder:
    """Note at the rung of the gang how many tasks idle nodes would hold, where that is too few."""
    if ladder.headline is None or ladder.headline.code != ReasonCode.GANG_INCOMPLETE:
        return ladder
    room = tasks_held(snapshot.nodes, job.roles, enough=job.min_available)
    if room >= job.min_available:
        return ladder
    rungs = (
        replace(rung, facts={**rung.facts, FACT: room}) if rung.name == "gang" else rung
        for rung in ladder.rungs
    )
    return replace(ladder, rungs=tuple(rungs))


def tasks_held(nodes: Iterable[Node], roles: Sequence[Role], *, enough: int) -> int:
    """Return a bound of how many tasks nodes hold if nothing runs there; it ends at `enough`.

    Each task counts as the least that any role asks for, and no rule keeps it off a node: fewer
    may really fit, never more.
    """
    least = {name: min(role.request.get(name, 0) for role in roles) for name in roles[0].request}
    wanted = [(name, amount) for name, amount in least.items() if amount > 0]
    held = 0
    for node in nodes:
        held += min((node.allocatable.get(name, 0) // a for name, a in wanted), default=enough)
        if held >= enough:
            break
    return min(held, enough)
