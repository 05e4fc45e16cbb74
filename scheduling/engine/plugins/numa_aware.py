"""The numa-aware plugin: CPUs of one NUMA node, with the devices next to them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from scheduling.engine.devices import Card
from scheduling.engine.journal import Entry, EntryKind
from scheduling.engine.numa import ANY, NONE, POLICIES, Hint, choose, cpus_of, hints
from scheduling.engine.plugin import Plugin
from scheduling.engine.session import Session
from scheduling.engine.shapes import CPU_DIM, Bools, Float64, Shape
from scheduling.engine.types import PluginConfig

POLICY = "volcano.sh/numa-topology-policy"

ONE_CPU = 1000

TOP_SCORE = 100.0


class NumaAware(Plugin):
    """Keep a task off nodes that cannot give it CPUs as its policy, or the node's own, demands.

    For tasks that ask for whole CPUs. Policies: `best-effort` takes the fewest NUMA nodes that
    have room; `restricted` only as few as an empty node would need; `single-numa-node` only one.
    Whole devices that the task asks for are taken from the same NUMA nodes. A node that states
    `any` serves each task's policy, others only their own. Argument `weight` (1): score = 100 x
    (1 - NUMA nodes used / NUMA nodes) x weight.
    Source: Volcano pkg/scheduler/plugins/numaaware, which knows CPUs only.
    """

    name = "numa-aware"

    def __init__(self, session: Session, config: PluginConfig) -> None:
        """Act only where some node tells its NUMA nodes or some task has a policy."""
        super().__init__(session, config)
        self._free: dict[int, dict[int, set[int]]] = {}
        self._chosen: dict[tuple[object, ...], Hint | None] = {}
        self.has_nodes = session.tables.nodes.has_numa
        has_policies = any(_policy(s) != NONE for s in session.tables.shapes)
        self.predicate = self._predicate if self.has_nodes or has_policies else None
        if not self.has_nodes:
            self.node_room = self.node_order = None
            self.cpu_set = self.device_filter = None
            self.on_placed = self.on_undone = None
        else:
            self.node_room, self.node_order = self._node_room, self._node_order
            self.cpu_set, self.device_filter = self._cpu_set, self._device_filter
            self.on_placed, self.on_undone = self._take, self._put_back

    def _predicate(self, shape: Shape) -> Bools:
        """Return bool[N]: nodes that could serve the task's policy at all."""
        policy = _policy(shape)
        return np.array(
            [
                policy == NONE or (bool(n.numa) and n.numa_policy in (ANY, policy))
                for n in self.session.tables.nodes.nodes
            ],
            dtype=bool,
        )

    # -- choosing -------------------------------------------------------------------------------

    def _binding_policy(self, shape: Shape, node: int) -> str:
        """Return the policy by which a task is placed on a node: its own, else the node's."""
        own = _policy(shape)
        of_node = self.session.tables.nodes.nodes[node].numa_policy
        found = of_node if own == NONE and of_node in POLICIES else own
        return found if _cpus(shape) else NONE

    def free(self, node: int) -> dict[int, set[int]]:
        """Return NUMA node -> CPUs that nobody holds for itself."""
        known = self._free.get(node)
        if known is None:
            tables = self.session.tables
            taken: set[int] = set()
            for key in tables.rows_by_node.get(node, ()):
                for role in tables.rows[key].roles:
                    for task, at in (*role.held, *role.releasing):
                        if at == node:
                            taken.update(task.cpus)
            known = {n.index: set(n.cpus) - taken for n in tables.nodes.nodes[node].numa}
            self._free[node] = known
        return known

    def hint(self, shape: Shape, node: int) -> Hint | None:
        """Return the NUMA nodes for a task, None if its policy admits none."""
        policy = self._binding_policy(shape, node)
        here = self.session.tables.nodes.nodes[node]
        free = {n: len(cpus) for n, cpus in self.free(node).items()}
        most = {n.index: len(n.cpus) for n in here.numa}
        wanted = shape.ask.count if shape.ask is not None and shape.ask.is_whole else 0
        cards = [c for c in self.session.cards(node).values() if c.device.numa_node >= 0]
        idle = Counter(c.device.numa_node for c in cards if c.is_idle)
        all_cards = Counter(c.device.numa_node for c in cards)
        wanted = wanted if cards else 0
        amounts = tuple(_frozen(a) for a in (free, most, idle, all_cards))
        key = (policy, _cpus(shape), wanted, amounts)
        if key not in self._chosen:
            found = hints(
                _cpus(shape), free, most, devices=wanted, idle=idle, most_devices=all_cards
            )
            if not found and policy not in POLICIES - {"best-effort"}:
                found = hints(_cpus(shape), free, most)
            self._chosen[key] = choose(policy, found, free)
        return self._chosen[key]

    def _concerns(self, shape: Shape, node: int) -> bool:
        is_numa = bool(self.session.tables.nodes.nodes[node].numa)
        return is_numa and self._binding_policy(shape, node) in POLICIES

    # -- callbacks ------------------------------------------------------------------------------

    def _node_room(self, shape: Shape, nodes: Any) -> Bools:
        positions = np.arange(self.session.tables.nodes.count)[nodes]
        return np.array(
            [not self._concerns(shape, n) or self.hint(shape, n) is not None for n in positions],
            dtype=bool,
        )

    def _node_order(self, shape: Shape, nodes: Any) -> Float64:
        positions = np.arange(self.session.tables.nodes.count)[nodes]
        scores = [self._score(shape, int(n)) for n in positions]
        return np.array(scores, dtype=np.float64) * self.number("weight", 1)

    def _score(self, shape: Shape, node: int) -> float:
        found = self.hint(shape, node) if self._concerns(shape, node) else None
        count = len(self.session.tables.nodes.nodes[node].numa)
        return TOP_SCORE * (1 - len(found.numa) / count) if found is not None else 0.0

    def _device_filter(self, shape: Shape, node: int, cards: list[Card]) -> list[Card]:
        """Return the devices next to the CPUs, or all where they do not suffice."""
        if not self._concerns(shape, node):
            return cards
        found = self.hint(shape, node)
        near = [c for c in cards if found is None or c.device.numa_node in found.numa]
        wanted = shape.ask.count if shape.ask is not None else 0
        has_enough = sum(c.is_idle for c in near) >= wanted
        is_strict = self._binding_policy(shape, node) != "best-effort"
        knows_numa = all(c.device.numa_node >= 0 for c in cards)
        return near if has_enough or (is_strict and knows_numa) else cards

    def _cpu_set(self, entry: Entry) -> tuple[int, ...] | None:
        """Return the CPUs for a task, () where none are given out, None if there are not enough."""
        shape = entry.role.shape
        if not self._concerns(shape, entry.node):
            return ()
        found = self.hint(shape, entry.node)
        return None if found is None else cpus_of(found, _cpus(shape), self.free(entry.node))

    def _take(self, entry: Entry) -> None:
        if entry.kind is EntryKind.PLACE and entry.cpus:
            for cpus in self.free(entry.node).values():
                cpus.difference_update(entry.cpus)

    def _put_back(self, entry: Entry) -> None:
        if entry.kind is EntryKind.PLACE and entry.cpus:
            here = self.session.tables.nodes.nodes[entry.node]
            for numa in here.numa:
                self.free(entry.node)[numa.index].update(set(numa.cpus) & set(entry.cpus))


def _policy(shape: Shape) -> str:
    stated = shape.annotations.get(POLICY, shape.topology_policy)
    return stated if stated in POLICIES else NONE


def _cpus(shape: Shape) -> int:
    """Return how many whole CPUs a task asks for; 0 if it asks for a part of one."""
    milli = shape.request[CPU_DIM]
    return milli // ONE_CPU if milli % ONE_CPU == 0 else 0


def _frozen(amounts: dict[int, int]) -> tuple[tuple[int, int], ...]:
    return tuple(sorted(amounts.items()))
