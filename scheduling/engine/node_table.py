"""The nodes as columns: amounts by resource, labels, taints and runtimes as codes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from scheduling.engine.device_classes import ONE_DEVICE, PREFIX, devices_of
from scheduling.engine.devices import SHARING_NAMES, offered
from scheduling.engine.shapes import UNLIMITED, Bools, Int64, Resources
from scheduling.engine.types import PODS, DeviceClass, Node


class NodeTable:
    """The nodes by name, one array a resource: `allocatable` is int64[R, N]."""

    __slots__ = (
        "_label_codes",
        "_runtime_codes",
        "_taint_codes",
        "allocatable",
        "count",
        "device_classes",
        "has_numa",
        "index",
        "is_schedulable",
        "judged",
        "names",
        "nodes",
        "resources",
    )

    def __init__(
        self,
        nodes: Iterable[Node],
        resources: Resources,
        device_classes: tuple[DeviceClass, ...] = (),
    ) -> None:
        """Lay the nodes out; a node without `pods` has no limit of them."""
        self.nodes = tuple(sorted(nodes, key=lambda n: n.name))
        self.resources = resources
        self.device_classes = device_classes
        self.has_numa = any(n.numa for n in self.nodes)
        self.names = [n.name for n in self.nodes]
        self.index = {name: i for i, name in enumerate(self.names)}
        self.count = len(self.nodes)
        self.allocatable: Int64 = np.zeros((len(resources.names), self.count), dtype=np.int64)
        for d, name in enumerate(resources.names):
            if name.startswith(PREFIX):
                self.allocatable[d] = self._claimable(name.removeprefix(PREFIX))
                continue
            if name in SHARING_NAMES:
                self.allocatable[d] = [
                    known if (known := n.allocatable.get(name)) is not None else offered(n, name)
                    for n in self.nodes
                ]
                continue
            missing = UNLIMITED if name == PODS else 0
            self.allocatable[d] = [n.allocatable.get(name, missing) for n in self.nodes]
        self.is_schedulable: Bools = np.array([n.is_schedulable for n in self.nodes], dtype=bool)
        self.judged: dict[object, tuple[Bools, Mapping[str, int]]] = {}
        """Kept by the predicates plugin: what a task says of nodes -> those that pass, and how many
        fail which filter."""
        self._label_codes: dict[str, tuple[dict[str, int], Int64]] = {}
        self._taint_codes: tuple[list[Node], Int64] | None = None
        self._runtime_codes: tuple[list[frozenset[str] | None], Int64] | None = None

    def _claimable(self, name: str) -> list[int]:
        """Return how much of a class each node has; no limit where no class is described."""
        classes = self.device_classes
        if not classes:
            return [UNLIMITED] * self.count
        return [ONE_DEVICE * len(devices_of(name, classes, n.devices)) for n in self.nodes]

    def label(self, key: str) -> tuple[dict[str, int], Int64]:
        """Return (value -> code, code by node int64[N]) of one label; -1 where it is missing."""
        if key not in self._label_codes:
            codes: dict[str, int] = {}
            column = [
                -1 if (value := n.labels.get(key)) is None else codes.setdefault(value, len(codes))
                for n in self.nodes
            ]
            self._label_codes[key] = (codes, np.array(column, dtype=np.int64))
        return self._label_codes[key]

    def taints(self) -> tuple[list[Node], Int64]:
        """Return (one node for each distinct set of taints, its code by node int64[N])."""
        if self._taint_codes is None:
            codes: dict[object, int] = {}
            examples: list[Node] = []
            column = []
            for node in self.nodes:
                code = codes.setdefault(node.taints, len(codes))
                if code == len(examples):
                    examples.append(node)
                column.append(code)
            self._taint_codes = (examples, np.array(column, dtype=np.int64))
        return self._taint_codes

    def runtimes(self) -> tuple[list[frozenset[str] | None], Int64]:
        """Return (each distinct set of runtimes, its code by node int64[N])."""
        if self._runtime_codes is None:
            codes: dict[frozenset[str] | None, int] = {}
            column = [codes.setdefault(n.runtimes, len(codes)) for n in self.nodes]
            self._runtime_codes = (list(codes), np.array(column, dtype=np.int64))
        return self._runtime_codes
