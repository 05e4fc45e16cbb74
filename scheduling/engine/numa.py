"""CPUs and devices of one machine side by side: which NUMA nodes a task should get them from."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import combinations

NONE, BEST_EFFORT, RESTRICTED, SINGLE = "none", "best-effort", "restricted", "single-numa-node"
ANY = "any"
"""Of a node that gives out CPUs as it is told, by whatever policy the task asks for."""

POLICIES = frozenset({BEST_EFFORT, RESTRICTED, SINGLE})


@dataclass(frozen=True, slots=True)
class Hint:
    """NUMA nodes that together have what a task asks; preferred: no fewer could ever hold it."""

    numa: tuple[int, ...]
    is_preferred: bool


def hints(
    count: int,
    free: Mapping[int, int],
    most: Mapping[int, int],
    *,
    devices: int = 0,
    idle: Mapping[int, int] | None = None,
    most_devices: Mapping[int, int] | None = None,
) -> list[Hint]:
    """Return all sets of NUMA nodes with enough free CPUs (and devices), narrower ones first.

    `free` and `most` are CPUs by NUMA node now and when nothing runs; `idle` and `most_devices`
    the same of devices. Source: kubelet's CPU manager hints; devices in the same hint are ours.
    """
    found = []
    narrowest = 0
    for size in range(1, len(most) + 1):
        for numa in combinations(sorted(most), size):
            if _holds(numa, count, most) and _holds(numa, devices, most_devices or {}):
                narrowest = narrowest or size
                if _holds(numa, count, free) and _holds(numa, devices, idle or {}):
                    found.append(Hint(numa, size == narrowest))
    return found


def _holds(numa: Collection[int], count: int, amounts: Mapping[int, int]) -> bool:
    return sum(amounts.get(n, 0) for n in numa) >= count


def choose(policy: str, found: list[Hint], free: Mapping[int, int]) -> Hint | None:
    """Return the best hint that a policy admits: preferred, narrow, least CPUs left over.

    best-effort admits all; restricted only preferred ones; single-numa-node only preferred ones of
    one NUMA node.
    """
    if policy == SINGLE:
        found = [h for h in found if h.is_preferred and len(h.numa) == 1]
    elif policy == RESTRICTED:
        found = [h for h in found if h.is_preferred]
    return min(
        found,
        key=lambda h: (
            not h.is_preferred,
            len(h.numa),
            sum(free.get(n, 0) for n in h.numa),
            h.numa,
        ),
        default=None,
    )


def cpus_of(hint: Hint, count: int, free: Mapping[int, Collection[int]]) -> tuple[int, ...]:
    """Return the CPUs to take: as many as possible of one NUMA node, the lowest numbers first."""
    taken: list[int] = []
    for numa in sorted(hint.numa, key=lambda n: (-len(free.get(n, ())), n)):
        taken += sorted(free.get(numa, ()))[: count - len(taken)]
    return tuple(sorted(taken))
