"""The deviceshare plugin: parts of devices packed or spread, and groups that share none."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from scheduling.engine.devices import Card, emptiest_first, fullest_first
from scheduling.engine.journal import Entry, EntryKind
from scheduling.engine.plugin import Plugin
from scheduling.engine.session import Session
from scheduling.engine.shapes import Bools, Float64, Shape
from scheduling.engine.types import PluginConfig

EXCLUSIVE = "terrace/gpu-exclusive"

TOP_SCORE = 100.0


class DeviceShare(Plugin):
    """Parts of devices: which device, and which node.

    A task asks for thousandths of one GPU, or as with HAMi for `volcano.sh/vgpu-number` devices
    with `vgpu-memory` (MiB) or `vgpu-memory-percentage` and `vgpu-cores` (percent) of each, for
    `gpu-memory` (MiB) of one, or for `gpu-number` whole ones. Memory and compute are counted
    apart; 100 percent of compute needs an unused device, 0 takes what is left. Annotations
    `nvidia.com/use-gputype`, `nouse-gputype`, `use-gpuuuid`, `nouse-gpuuuid` choose models and
    devices. Tasks whose annotation `terrace/gpu-exclusive` names the same group share no device.

    Arguments: `deviceshare.SchedulePolicy` (`binpack`, the default, or `spread`) and
    `deviceshare.ScheduleWeight` (0). Score: for binpack the share of memory in use on the devices
    chosen x 100, for spread 100 if they are unused, on average, x weight.
    Source: Volcano pkg/scheduler/plugins/deviceshare.
    """

    name = "deviceshare"

    def __init__(self, session: Session, config: PluginConfig) -> None:
        """Set the order of devices; watch groups only where some role names one."""
        super().__init__(session, config)
        self.is_spread = self.arguments.get("deviceshare.SchedulePolicy", "") == "spread"
        session.device_order = emptiest_first if self.is_spread else fullest_first
        self.weight = self.number("deviceshare.ScheduleWeight", 0)
        has_groups = any(EXCLUSIVE in s.annotations for s in session.tables.shapes)
        self.groups: dict[int, Counter[tuple[str, str]]] = {}
        self.device_filter = self._device_filter if has_groups else None
        self.on_placed = self._take if has_groups else None
        self.on_undone = self._put_back if has_groups else None
        self.node_order = self._node_order if self.weight else None

    def node_room(self, shape: Shape, nodes: Any) -> Bools:
        """Return bool: nodes that have devices for a part of one."""
        positions = np.arange(self.session.tables.nodes.count)[nodes]
        if shape.ask is None or shape.ask.is_whole:
            return np.ones(len(positions), dtype=bool)
        return np.array(
            [self.session.pick_devices(shape, int(n)) is not None for n in positions], dtype=bool
        )

    def _node_order(self, shape: Shape, nodes: Any) -> Float64:
        positions = np.arange(self.session.tables.nodes.count)[nodes]
        if shape.ask is None:
            return np.zeros(len(positions))
        scores = [self._score(shape, int(n)) for n in positions]
        return np.array(scores, dtype=np.float64) * self.weight

    def _score(self, shape: Shape, node: int) -> float:
        chosen = self.session.pick_devices(shape, node)
        if not chosen:
            return 0.0
        cards = [self.session.cards(node)[name] for name in chosen]
        if self.is_spread:
            return TOP_SCORE * sum(card.is_idle for card in cards) / len(cards)
        return sum(TOP_SCORE * (1000 - card.memory) / 1000 for card in cards) / len(cards)

    def _device_filter(self, shape: Shape, node: int, cards: list[Card]) -> list[Card]:
        """Return the devices on which none of the task's group is."""
        group = shape.annotations.get(EXCLUSIVE)
        if group is None:
            return cards
        taken = self._groups(node)
        return [card for card in cards if not taken[card.device.id, group]]

    def _groups(self, node: int) -> Counter[tuple[str, str]]:
        """Return (device, group) -> tasks."""
        known = self.groups.get(node)
        if known is None:
            known = self.groups[node] = Counter()
            tables = self.session.tables
            for key in tables.rows_by_node.get(node, ()):
                for role in tables.rows[key].roles:
                    group = role.shape.annotations.get(EXCLUSIVE)
                    for task, at in (*role.held, *role.releasing):
                        if at == node and group is not None:
                            known.update((device, group) for device in task.devices)
        return known

    def _take(self, entry: Entry) -> None:
        self._count(entry, 1)

    def _put_back(self, entry: Entry) -> None:
        self._count(entry, -1)

    def _count(self, entry: Entry, sign: int) -> None:
        group = entry.role.shape.annotations.get(EXCLUSIVE)
        if entry.kind is EntryKind.PLACE and group is not None:
            groups = self._groups(entry.node)
            for device in entry.devices:
                groups[device, group] += sign
