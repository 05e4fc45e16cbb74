"""Which port numbers an attempt may use on its node, so that two jobs of one machine do not meet.

Attempts on a node share its network. Framework plugins need one number that all tasks of a job
know beforehand (`MASTER_PORT`); it is chosen when the task is bound, from a pool below the range
that systems hand out by themselves, and kept in `Attempt.ports` until the attempt is final. Nodes
with the same address are the same machine as far as ports are concerned.

Nobody here knows what listens on a node besides Terrace's tasks. The number is therefore drawn, and
not the lowest free one: a stranger on one number then costs one attempt in ten thousand, and its
retry gets another, while the lowest would be handed to every job of that node for ever.
"""

import random
from collections import defaultdict
from collections.abc import Collection, Sequence
from itertools import chain

from scheduling.models import Attempt, Job, Node
from scheduling.models.attempt import LIVE_STATES

RENDEZVOUS = "rendezvous"
"""The label of the port on which a job's tasks find one another."""
FRAMEWORKS = frozenset({"pytorch", "tensorflow", "mpi", "ray"})
"""Plugins whose tasks listen for one another."""
POOL = range(20_000, 30_000)


def choose(places: Sequence[tuple[Job, Node]]) -> list[dict[str, int]]:
    """Return the ports of each new attempt, in order; empty where its job needs none."""
    if not any(needs_port(job) for job, _ in places):
        return [{} for _ in places]
    used = _used([node for _, node in places])
    return [
        {RENDEZVOUS: _take(used[machine(node)])} if needs_port(job) else {} for job, node in places
    ]


def needs_port(job: Job) -> bool:
    """Whether tasks of the job listen for one another."""
    return not FRAMEWORKS.isdisjoint(job.spec.get("plugins") or {})


def machine(node: Node) -> str:
    """Return what stands for the network of a node: its address, or itself while unknown."""
    return node.address or str(node.id)


def _used(nodes: Collection[Node]) -> defaultdict[str, set[int]]:
    addresses = {node.address for node in nodes if node.address}
    ids = {node.id for node in nodes}
    live = Attempt.objects.filter(state__in=LIVE_STATES).exclude(ports={}).select_related("node")
    used: defaultdict[str, set[int]] = defaultdict(set)
    for attempt in (
        live.filter(node__in=ids) | live.filter(node__address__in=addresses)
    ).distinct():
        used[machine(attempt.node)].update(attempt.ports.values())
    return used


def _take(used: set[int]) -> int:
    start = random.randrange(len(POOL))  # noqa: S311 -- to spread, not to hide
    for number in chain(POOL[start:], POOL[:start]):
        if number not in used:
            used.add(number)
            return number
    raise RuntimeError(f"all {len(POOL)} ports of a machine are in use")
