"""The queues of a snapshot as a tree of views, with what their jobs hold and ask for."""

from __future__ import annotations

from scheduling.engine.tables import Tables
from scheduling.engine.types import QueueState, Snapshot
from scheduling.engine.views import QueueView


def build_queues(snapshot: Snapshot, tables: Tables) -> dict[str, QueueView]:  # noqa: C901 - steps of one layout
    """Build the tree; a queue in a circle of parents is put at the top, closed."""
    ordered = sorted(snapshot.queues, key=lambda q: q.name)
    views = {q.name: QueueView(q, position=i, tables=tables) for i, q in enumerate(ordered)}
    for view in views.values():
        parent = views.get(view.queue.parent) if view.queue.parent is not None else None
        seen = {view.name}
        ancestor = parent
        while ancestor is not None and ancestor.name not in seen:
            seen.add(ancestor.name)
            above = ancestor.queue.parent
            ancestor = views.get(above) if above is not None else None
        if ancestor is not None:
            view.is_open = False
            continue
        view.parent = parent
        if parent is not None:
            parent.children.append(view)
    for view in views.values():
        path = [view]
        while path[-1].parent is not None:
            path.append(path[-1].parent)
        view.path = tuple(reversed(path))
    for view in views.values():
        view.is_open = all(v.queue.state is QueueState.OPEN for v in view.path) and (view.is_open)
    for name, view in views.items():
        allocated = tables.queue_allocated.get(name)
        if allocated is None:
            continue
        requested, releasing = tables.queue_requested[name], tables.queue_releasing[name]
        view.own_requested = list(requested)
        for level in view.path:
            for d in range(tables.width):
                level.allocated[d] += allocated[d]
                level.requested[d] += requested[d]
                level.releasing[d] += releasing[d]
    return views
