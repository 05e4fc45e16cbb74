"""What the tree-grid of queues shows: the rows, what is open, and where a row's toggle leads.

A small tree comes whole and is opened and closed in the browser. Of a large one only what is open
is read; what is open stands in the address, so that the page works without scripts and a link
shows others the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from django.urls import reverse
from django.utils.http import urlencode

from controlplane.charts import queue_tree as tree_chart
from controlplane.forms.queues import RESOURCES, QueueFields, QueueForm
from scheduling.domain.queries import queues as queue_queries
from scheduling.domain.queries.queues import Cut, QueueRow, TreePart
from tenants.domain.access import Actor

MOST_OPEN = 50
LONGEST_ARGUMENT = 200
"""What a live region can carry; a longer view is not kept up to date by itself."""
Rows = list[tuple[QueueRow, bool, QueueFields | None]]


@dataclass(frozen=True, slots=True)
class View:
    """What the address asks for."""

    resource: str = RESOURCES[0]
    opened: tuple[str, ...] = ()
    focus: str = ""
    after: str = ""

    @classmethod
    def of_query(cls, query: Any, rows: Iterable[QueueRow] = ()) -> View:
        """Read it from a QueryDict; without a resource, the first that the rows tell of."""
        resource = query.get("resource", "")
        return cls(
            resource if resource in RESOURCES else _main_resource(rows),
            tuple(dict.fromkeys(query.getlist("open")))[:MOST_OPEN],
            query.get("focus", "")[:253],
            query.get("after", "")[:253],
        )

    @classmethod
    def of_argument(cls, text: str) -> View:
        """Read it from a live region's argument."""
        resource, opened, focus, after = (*text.split("|"), "", "", "", "")[:4]
        names = tuple(name for name in opened.split(",") if name)
        return cls(resource if resource in RESOURCES else RESOURCES[0], names, focus, after)

    @property
    def argument(self) -> str:
        """Write it for a live region; empty if it is too long for one."""
        text = "|".join((self.resource, ",".join(self.opened), self.focus, self.after)).rstrip("|")
        return text if len(text) <= LONGEST_ARGUMENT else ""

    @property
    def cut(self) -> Cut:
        """Return what is to be read."""
        return Cut(frozenset(self.opened), self.focus, self.after)

    def url(self, **more: str) -> str:
        """Return the address of this view."""
        values: dict[str, Any] = {"resource": self.resource, "open": list(self.opened)}
        values |= {"focus": self.focus, "after": self.after} | more
        given = {name: value for name, value in values.items() if value}
        return f"{reverse('pages:queue_tree')}?{urlencode(given, doseq=True)}"

    def toggled(self, name: str) -> str:
        """Return the address with one queue opened or closed."""
        opened = tuple(one for one in self.opened if one != name)
        if opened == self.opened:
            opened = (*self.opened, name)
        return replace(self, opened=opened).url()


def _main_resource(rows: Iterable[QueueRow]) -> str:
    """Return CPUs where the last cycle shared out no GPUs, as it does where no node has one."""
    shared = [row.deserved for row in rows if row.deserved is not None]
    has_gpus = any(RESOURCES[0] in amounts for amounts in shared)
    return "cpu" if shared and not has_gpus else RESOURCES[0]


def rows_context(
    actor: Actor, cluster_id: UUID, view: View, form: QueueForm | None = None
) -> dict[str, object]:
    """Read the rows of a view; what the page and its live region render."""
    found = queue_queries.part(actor, cluster_id, view.cut)
    return context_of(found, view, form)


def context_of(found: TreePart, view: View, form: QueueForm | None = None) -> dict[str, object]:
    """Return the context of `queues/_rows.html` for rows at hand."""
    rows = with_groups(found.rows, form)
    return {
        "rows": rows,
        "resource": view.resource,
        "view": view,
        "part": found,
        "toggles": {} if found.is_whole else _toggles(rows, view),
        "more": _more(found, view),
    }


def chart_context(actor: Actor, cluster_id: UUID, view: View) -> dict[str, object]:
    """Read the rows of a view and draw them; what the chart below the tree renders."""
    found = queue_queries.part(actor, cluster_id, view.cut)
    return {
        "rows": with_groups(found.rows),
        "resource": view.resource,
        "chart": tree_chart.chart(found.rows, view.resource),
    }


def with_groups(rows: tuple[QueueRow, ...] | list[QueueRow], form: QueueForm | None = None) -> Rows:
    """Return the rows, each with whether others are shown below it and its fields if edited."""
    groups = {row.parent_id for row in rows}
    return [(row, row.id in groups, form.rows.get(str(row.id)) if form else None) for row in rows]


def _toggles(rows: Rows, view: View) -> dict[UUID, str]:
    """Return where the toggle of each group leads; the topmost is always open."""
    return {
        row.id: view.toggled(row.name)
        for row, is_open, _fields in rows
        if not row.is_leaf and not row.is_path_only and (not is_open or row.name in view.opened)
    }


def _more(found: TreePart, view: View) -> Mapping[UUID, tuple[int, str]]:
    """Return, for the last shown child of a parent, how many follow and where they are."""
    last: dict[UUID | None, QueueRow] = {}
    names = {row.id: row.name for row in found.rows}
    for row in found.rows:
        last[row.parent_id] = row
    return {
        last[parent].id: (
            count,
            replace(view, opened=(), focus=names[parent], after=last[parent].name).url(),
        )
        for parent, count in found.more.items()
        if parent in last
    }
