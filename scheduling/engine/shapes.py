"""What tells tasks apart for placement: amounts by resource, and shapes that are scored once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from scheduling.engine.devices import ANNOTATIONS, Ask, ask_of
from scheduling.engine.types import CPU, MEMORY, PODS, Amounts, Requirement, Role, Toleration

Int64 = NDArray[np.int64]
Bools = NDArray[np.bool_]
Float64 = NDArray[np.float64]

UNLIMITED = 2**60
"""Stands for "no limit"; far above any amount, and sums of two still fit an int64."""

ONE_POD = 1000
"""What each task takes of `pods`."""

CPU_DIM, MEMORY_DIM, PODS_DIM = 0, 1, 2

SHAPE_ANNOTATIONS = frozenset(
    {
        "volcano.sh/revocable-zone",
        "volcano.sh/numa-topology-policy",
        "volcano.sh/resource-strategy-scoring-type",
        "volcano.sh/resource-strategy-weight",
        "terrace/revocable-zone",
        "terrace/gpu-exclusive",
    }
    | ANNOTATIONS
)
"""Annotations of a role that decide where its tasks may run."""

QUEUE_AFFINITY = "terrace/node-group-affinity"
QUEUE_GROUP_LIMITS = "volcano.sh/nodegroup-resource-limits"
QUEUE_RULES = frozenset({QUEUE_AFFINITY, QUEUE_GROUP_LIMITS})
"""Annotations of queues that decide where their tasks may run."""

GpuAsk = tuple[int, int, int, tuple[object, ...], tuple[object, ...]]
"""GPU thousandths, CPU, memory, selector, affinity: what tells typical GPU tasks apart."""

ShapeKey = tuple[object, ...]


class Resources:
    """Resource names and their positions: cpu, memory, pods, then the others by name."""

    __slots__ = ("index", "names")

    def __init__(self, names: Iterable[str]) -> None:
        """Order the names."""
        others = sorted(set(names) - {CPU, MEMORY, PODS})
        self.names: tuple[str, ...] = (CPU, MEMORY, PODS, *others)
        self.index: dict[str, int] = {name: i for i, name in enumerate(self.names)}

    def amounts(self, values: Iterable[int]) -> dict[str, int]:
        """Return a vector as name -> amount, without the zeros."""
        return {n: int(v) for n, v in zip(self.names, values, strict=True) if v}

    def limits(self, values: Iterable[int]) -> dict[str, int]:
        """Return a vector of limits as name -> amount, without the unlimited ones."""
        return {n: int(v) for n, v in zip(self.names, values, strict=True) if v < UNLIMITED}

    def row(self, amounts: Amounts, *, missing: int = 0) -> list[int]:
        """Return the amounts in the order of `names`."""
        return [amounts.get(name, missing) for name in self.names]


class Shape:
    """What placement sees of a task: all tasks of one shape have the same feasible nodes."""

    __slots__ = (
        "affinity",
        "annotations",
        "ask",
        "container_images",
        "data_sets",
        "gpu_ask",
        "gpu_milli",
        "image",
        "index",
        "is_best_effort",
        "items",
        "least",
        "limits",
        "queue",
        "request",
        "selector",
        "tolerations",
        "topology_policy",
        "vector",
    )

    def __init__(
        self, *, index: int, request: list[int], gpu_milli: int, role: Role, queue: str
    ) -> None:
        """Keep what the role says about placement."""
        self.index = index
        self.queue = queue
        """The queue, where a queue's rules decide about nodes too; else empty."""
        self.request = request
        self.vector: Int64 = np.array(request, dtype=np.int64)
        self.items: tuple[tuple[int, int], ...] = tuple(
            (d, amount) for d, amount in enumerate(request) if amount > 0
        )
        self.least: Int64 = np.where(self.vector > 0, self.vector, -UNLIMITED)[:, np.newaxis]
        """int64[R, 1]: what must be free; of what it does not ask for, anything will do."""
        self.gpu_milli = gpu_milli
        self.ask: Ask | None = ask_of(gpu_milli, role.request, role.annotations)
        """What it wants of single devices."""
        self.data_sets = role.data_sets
        self.container_images = role.container_images
        self.limits = role.limits
        self.is_best_effort = all(d == PODS_DIM for d, _ in self.items)
        self.selector: tuple[tuple[str, str], ...] = tuple(sorted(role.node_selector.items()))
        self.affinity: tuple[tuple[Requirement, ...], ...] = role.node_affinity
        self.gpu_ask: GpuAsk = (
            gpu_milli,
            request[CPU_DIM],
            request[MEMORY_DIM],
            self.selector,
            tuple(tuple((r.key, r.operator, r.values) for r in term) for term in self.affinity),
        )
        self.tolerations: tuple[Toleration, ...] = role.tolerations
        self.image = role.image
        self.topology_policy = role.topology_policy
        self.annotations: Mapping[str, str] = {
            k: v for k, v in role.annotations.items() if k in SHAPE_ANNOTATIONS
        }


def shape_key(role: Role) -> ShapeKey:
    """Return what two roles must have in common to share a shape."""
    annotations = (
        tuple(sorted((k, v) for k, v in role.annotations.items() if k in SHAPE_ANNOTATIONS))
        if role.annotations
        else ()
    )
    return (
        tuple(sorted(role.request.items())),
        tuple(sorted(role.node_selector.items())),
        role.node_affinity,
        role.tolerations,
        role.image,
        role.topology_policy,
        annotations,
        role.data_sets,
        role.container_images,
        tuple(sorted(role.limits.items())) if role.limits else (),
    )
