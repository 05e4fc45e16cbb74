"""In which order things that wait for one another can start: roles of a job, steps of a flow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StartOrder:
    """A valid order, or a cycle that makes one impossible (its first name is also its last)."""

    order: tuple[str, ...] = ()
    cycle: tuple[str, ...] = ()


def find_order(depends_on: Mapping[str, Sequence[str]]) -> StartOrder:
    """Return the start order; names that nobody describes are ignored. Linear in the edges.

    1. Walk depth first along the dependencies, each name once, with an explicit stack.
    2. A name is placed after everything it waits for; meeting one on the current path is a cycle.
    """
    done: dict[str, bool] = {}
    order: list[str] = []
    for start in depends_on:
        if start in done:
            continue
        path = [start]
        pending = [iter(depends_on[start])]
        done[start] = False
        while path:
            following = next((n for n in pending[-1] if n in depends_on), None)
            if following is None:
                pending.pop()
                name = path.pop()
                done[name] = True
                order.append(name)
            elif following not in done:
                done[following] = False
                path.append(following)
                pending.append(iter(depends_on[following]))
            elif not done[following]:
                return StartOrder(cycle=(*path[path.index(following) :], following))
    return StartOrder(order=tuple(order))
