"""The queues of a snapshot as a tree of views, with what their jobs hold and ask for."""

from __future__ import annotations

from collections.abc import Sequence

from scheduling.engine.tables import Tables
from scheduling.engine.views import QueueView


def build_queues(tables: Tables) -> dict[str, QueueView]:
    """Build the tree, in the order of the queues' names; amounts contain those of the children."""
    views: list[QueueView] = []
    for place in tables.layout.places:
        parent = views[place.parent] if place.parent >= 0 else None
        views.append(QueueView(place, parent, tables))
    for view in reversed(views):
        if view.children:
            view.allocated = _sum(view.allocated, [child.allocated for child in view.children])
            view.requested = _sum(view.requested, [child.requested for child in view.children])
            view.releasing = _sum(view.releasing, [child.releasing for child in view.children])
    return {views[position].name: views[position] for position in tables.layout.by_name}


def _sum(own: Sequence[int], rows: Sequence[Sequence[int]]) -> list[int]:
    return [sum(column) for column in zip(own, *rows, strict=True)]
