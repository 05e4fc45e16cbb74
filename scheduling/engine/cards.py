"""What is left of each device in one cycle."""

from __future__ import annotations

from collections.abc import Iterable

from scheduling.engine.devices import Ask, Card
from scheduling.engine.tables import Tables
from scheduling.engine.types import GPU


class Cards:
    """The healthy GPUs of each node that anybody asked about, and what tasks hold of them."""

    def __init__(self, tables: Tables) -> None:
        """Start with none read."""
        self._tables = tables
        self._by_node: dict[int, dict[str, Card]] = {}

    def of(self, node: int) -> dict[str, Card]:
        """Return device id -> what is left of it, of the healthy devices of a node, in order."""
        cards = self._by_node.get(node)
        if cards is None:
            tables = self._tables
            devices = sorted(tables.nodes.nodes[node].devices, key=lambda d: (d.index, d.id))
            cards = {d.id: Card(d) for d in devices if d.is_healthy and d.resource == GPU}
            self._by_node[node] = cards
            for key in tables.rows_by_node.get(node, ()):
                for role in tables.rows[key].roles:
                    for task, at in (*role.held, *role.releasing):
                        if at == node and task.devices:
                            self.book(node, task.devices, role.shape.ask, 1)
        return cards

    def book(self, node: int, devices: Iterable[str], ask: Ask | None, sign: int) -> None:
        """Count one task on its devices, or with sign -1 take it off."""
        cards = self.of(node)
        for name in devices:
            card = cards.get(name)
            if card is None or ask is None:
                continue
            memory, compute = ask.takes(card.device)
            card.memory -= sign * memory
            card.compute -= sign * compute
            card.tasks += sign
