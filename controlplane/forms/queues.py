"""The tree of queues as a form: numbers of one resource for many queues become edits.

Each queue carries the version and the values that the person saw, so that a change made meanwhile
by somebody else is noticed and shown three ways, never overwritten.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.utils.translation import gettext_lazy

from scheduling.domain.queries.queues import QueueRow
from scheduling.domain.queue_changes import QueueDifference, QueueEdit
from scheduling.domain.wording import sentence
from scheduling.spec.quantities import write_bytes, write_thousandths
from scheduling.spec.queue_tree import MOST_WEIGHT
from scheduling.spec.reader import Findings, counts_in_bytes, read_amount

FIELDS = ("weight", "min", "max")
LABELS = {"weight": gettext_lazy("Weight"), "min": gettext_lazy("Min"), "max": gettext_lazy("Max")}
RESOURCES = ("nvidia.com/gpu", "cpu", "memory")


@dataclass(slots=True)
class QueueFields:
    """One row of the form: what stands in its fields and what is wrong there."""

    id: str
    version: int
    base: dict[str, Any]
    values: dict[str, str]
    errors: dict[str, list[str]] = field(default_factory=dict)

    @property
    def base_json(self) -> str:
        """Return the hidden field's text."""
        return json.dumps(self.base, sort_keys=True)


@dataclass(slots=True)
class QueueForm:
    """All rows by queue id, and the problems that belong to none."""

    resource: str
    rows: dict[str, QueueFields] = field(default_factory=dict)
    general: list[str] = field(default_factory=list)

    @property
    def is_valid(self) -> bool:
        """Whether every field could be read."""
        return not self.general and not any(row.errors for row in self.rows.values())

    def edits(self) -> list[QueueEdit]:
        """Return an edit for each queue whose fields differ from what the person saw."""
        return [edit for row in self.rows.values() if (edit := self._edit(row))]

    def _edit(self, row: QueueFields) -> QueueEdit | None:
        changes: dict[str, Any] = {}
        weight = row.values["weight"].strip()
        if weight and weight != str(row.base["weight"]):
            if weight.isdecimal() and len(weight) <= 9:  # noqa: PLR2004 -- fits any column
                changes["weight"] = int(weight)
            else:
                row.errors.setdefault("weight", []).append(
                    sentence("out_of_range", {"value": weight[:40], "min": 1, "max": MOST_WEIGHT})
                )
        for name in ("min", "max"):
            amounts = self._amounts(row, name)
            if amounts is not None and amounts != row.base[name]:
                changes[name] = amounts
        if not changes:
            return None
        return QueueEdit(
            queue_id=UUID(row.id), expected_version=row.version, base=row.base, **changes
        )

    def _amounts(self, row: QueueFields, name: str) -> dict[str, int] | None:
        """Return all amounts with the field's in its place; None if it cannot be read."""
        text = row.values[name].strip()
        others = {key: value for key, value in row.base[name].items() if key != self.resource}
        if not text:
            return others
        amount, problem = typed_amount(text, self.resource)
        if problem:
            row.errors.setdefault(name, []).append(problem)
            return None
        return {**others, self.resource: amount}

    def take(self, problems: Sequence[Any], names: Mapping[str, str]) -> None:
        """Put problems at their fields; `names` maps a queue's name to its id."""
        for problem in problems:
            text = sentence(problem.code, problem.params)
            queue, _sep, rest = problem.path.removeprefix("queues[").partition("]")
            row = self.rows.get(names.get(queue, ""))
            head = rest.lstrip(".").partition(".")[0].partition("[")[0]
            if row is not None and head in FIELDS:
                row.errors.setdefault(head, []).append(text)
            else:
                self.general.append(f"{queue}: {text}" if row is not None else text)


def form_of_rows(rows: Sequence[QueueRow], resource: str) -> QueueForm:
    """Return the form as the tree is now, for the rows that the viewer may edit."""
    form = QueueForm(resource)
    for row in rows:
        if row.may_edit and row.parent_id is not None:
            base = {"weight": row.weight, "min": dict(row.min), "max": dict(row.max)}
            form.rows[str(row.id)] = QueueFields(
                str(row.id), row.version, base, values_of(base, resource)
            )
    return form


def form_of_post(post: Any) -> QueueForm:
    """Read the form from a POST (a QueryDict)."""
    resource = post.get("resource", "")
    form = QueueForm(resource if resource in RESOURCES else RESOURCES[0])
    for queue_id in post.getlist("queue")[:2000]:
        base = _base(post.get(f"q-{queue_id}-base", ""))
        version = post.get(f"q-{queue_id}-version", "")
        if base is None or not version.isdecimal() or not _is_uuid(queue_id):
            form.general.append(sentence("form_damaged", {}))
            continue
        values = {name: post.get(f"q-{queue_id}-{name}", "") for name in FIELDS}
        form.rows[queue_id] = QueueFields(queue_id, int(version), base, values)
    return form


def values_of(base: Mapping[str, Any], resource: str) -> dict[str, str]:
    """Return what stands in the fields for these numbers."""
    return {
        "weight": str(base["weight"]),
        "min": amount_text(base["min"].get(resource), resource),
        "max": amount_text(base["max"].get(resource), resource),
    }


def typed_amount(text: str, resource: str) -> tuple[int, str]:
    """Read an amount as a field takes it; return it, and in words what is wrong with it."""
    findings = Findings()
    amount = read_amount(resource, text, "", findings)
    return amount, " ".join(sentence(one.code, one.params) for one in findings.problems)


def amount_text(amount: int | None, resource: str) -> str:
    """Write an amount as a field takes it; none is empty."""
    if amount is None:
        return ""
    return write_bytes(amount) if counts_in_bytes(resource) else write_thousandths(amount)


@dataclass(frozen=True, slots=True)
class Contested:
    """One field that two people changed, as text."""

    queue_id: str
    queue: str
    field: str
    base: str
    theirs: str
    yours: str


@dataclass(frozen=True, slots=True)
class ConflictRow:
    """A queue of the conflict page, with its version and values as they are now."""

    fields: QueueFields
    name: str
    contested: tuple[Contested, ...]


def conflict_rows(differences: Sequence[QueueDifference], form: QueueForm) -> list[ConflictRow]:
    """Return what the conflict page shows; other edited queues keep what was wanted."""
    rows = []
    for one in differences:
        queue = one.queue
        stored = {field.field: field.theirs for field in one.fields}
        current = {
            "weight": stored.get("weight", queue.weight),
            "min": stored.get("min", queue.min),
            "max": stored.get("max", queue.max),
        }
        old = form.rows[str(queue.id)]
        theirs = values_of(current, form.resource)
        was = values_of(old.base, form.resource)
        contested = tuple(
            Contested(old.id, queue.name, name, was[name], theirs[name], old.values[name])
            for name in FIELDS
            if old.values[name].strip() != theirs[name]
        )
        fresh = QueueFields(old.id, queue.version, current, theirs)
        rows.append(ConflictRow(fresh, queue.name, contested))
    return rows


def _base(text: str) -> dict[str, Any] | None:
    try:
        base = json.loads(text)
    except ValueError:
        return None
    is_whole = isinstance(base, dict) and set(base) == set(FIELDS)
    return (
        base if is_whole and all(isinstance(base[name], dict) for name in ("min", "max")) else None
    )


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True
