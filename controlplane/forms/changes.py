"""A change set as a form: for each queue its numbers as text, with what was seen beside them.

A queue that was added and not changed yet travels in the address (`?add=name`), not in the draft.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from controlplane.forms.queues import RESOURCES, amount_text, typed_amount
from controlplane.units import UNKNOWN, amount, resource_name
from scheduling.domain.change_set_rows import FIELDS, seen_of
from scheduling.domain.queue_changes import QueueDifference, QueueEdit
from scheduling.domain.wording import sentence
from scheduling.models import ChangeItem, ChangeSet, Queue
from scheduling.models.queue import QueuePolicy

AMOUNTS = ("min", "max")
NUMBERS = ("weight", "priority")
FLAGS = ("lend_min", "reclaimable", "are_logs_shared")
LONGEST_NUMBER = 9
MOST_QUEUES = 200
"""So many queues fit one form; larger sets are planned by the API."""


@dataclass(slots=True)
class Input:
    """One field: its name in the form, what stands in it, what was seen, what is wrong."""

    name: str
    label: str
    value: str
    seen: str
    kind: str = "text"
    choices: tuple[tuple[str, str], ...] = ()
    errors: list[str] = field(default_factory=list)

    @property
    def is_changed(self) -> bool:
        """Whether another value is wanted than was seen."""
        return self.value.strip() != self.seen


@dataclass(slots=True)
class ItemForm:
    """The fields of one queue."""

    id: str
    queue: str
    version: int
    base: dict[str, Any]
    inputs: dict[str, Input]

    @property
    def base_json(self) -> str:
        """Return the hidden field's text."""
        return json.dumps(self.base, sort_keys=True)

    @property
    def shown(self) -> Iterable[Input]:
        """Return the fields in order."""
        return self.inputs.values()


@dataclass(slots=True)
class ChangeForm:
    """All queues of a change set, and the problems that belong to none."""

    items: dict[str, ItemForm] = field(default_factory=dict)
    general: list[str] = field(default_factory=list)

    @property
    def is_valid(self) -> bool:
        """Whether every field could be read."""
        return not self.general and not any(
            one.errors for item in self.items.values() for one in item.inputs.values()
        )

    def edits(self) -> list[QueueEdit]:
        """Return an edit for each queue of which something else is wanted than was seen."""
        return [edit for item in self.items.values() if (edit := _edit(item))]

    def take(self, problems: Sequence[Any]) -> None:
        """Put problems at their fields."""
        by_name = {item.queue: item for item in self.items.values()}
        for problem in problems:
            text = sentence(problem.code, problem.params)
            queue, _sep, rest = problem.path.removeprefix("queues[").partition("]")
            item = by_name.get(queue)
            found = _input_at(item, rest.lstrip(".")) if item else None
            if found is not None:
                found.errors.append(text)
            else:
                self.general.append(f"{queue}: {text}" if queue else text)


def form_of(row: ChangeSet, added: Sequence[Queue] = ()) -> ChangeForm:
    """Return the form of a stored change set, with queues that are to be added."""
    form = ChangeForm()
    for item in row.items.all():
        if item.queue_id is not None:
            form.items[str(item.queue_id)] = _of_item(item)
    for queue in added:
        if str(queue.id) not in form.items:
            seen = seen_of(queue)
            form.items[str(queue.id)] = _item(str(queue.id), queue.name, queue.version, seen, {})
    return form


def form_of_post(post: Any) -> ChangeForm:
    """Read the form from a POST (a QueryDict)."""
    form = ChangeForm()
    for queue_id in post.getlist("queue")[:MOST_QUEUES]:
        base = _base(post.get(f"c-{queue_id}-base", ""))
        version = post.get(f"c-{queue_id}-version", "")
        if base is None or not version.isdecimal() or not _is_uuid(queue_id):
            form.general.append(sentence("form_damaged", {}))
            continue
        name = post.get(f"c-{queue_id}-name", "")[:253]
        item = _item(queue_id, name, int(version), base, {})
        for one in item.inputs.values():
            one.value = post.get(one.name, one.seen)[:80]
        form.items[queue_id] = item
    return form


def _of_item(item: ChangeItem) -> ItemForm:
    seen = {name: item.old[name] for name in FIELDS}
    return _item(str(item.queue_id), item.queue_name, item.expected_version, seen, item.new)


def _item(
    queue_id: str, name: str, version: int, seen: dict[str, Any], wanted: Mapping[str, Any]
) -> ItemForm:
    inputs: dict[str, Input] = {}
    values = seen | dict(wanted)
    prefix = f"c-{queue_id}"
    for number, label in zip(NUMBERS, (_("Weight"), _("Priority")), strict=True):
        inputs[number] = Input(
            f"{prefix}-{number}", label, str(values[number]), str(seen[number]), "number"
        )
    for kind, label in zip(AMOUNTS, (_("Min %(name)s"), _("Max %(name)s")), strict=True):
        for resource in _resources(seen, values):
            key = f"{kind}.{resource}"
            inputs[key] = Input(
                f"{prefix}-{key}",
                label % {"name": resource_name(resource)},
                amount_text(values[kind].get(resource), resource),
                amount_text(seen[kind].get(resource), resource),
            )
    inputs["policy"] = Input(
        f"{prefix}-policy",
        _("Order of jobs"),
        values["policy"],
        seen["policy"],
        "select",
        tuple(policies()),
    )
    labels = (_("Lends its min"), _("Others may reclaim"), _("Logs shared"))
    for flag, label in zip(FLAGS, labels, strict=True):
        inputs[flag] = Input(
            f"{prefix}-{flag}",
            label,
            _flag(values[flag]),
            _flag(seen[flag]),
            "select",
            (("yes", _("yes")), ("no", _("no"))),
        )
    return ItemForm(queue_id, name, version, seen, inputs)


POLICIES = {
    QueuePolicy.PRIORITY: gettext_lazy("priority, then age"),
    QueuePolicy.FIFO: gettext_lazy("first in, first out"),
    QueuePolicy.FAIR: gettext_lazy("fair among users"),
    QueuePolicy.SLA: gettext_lazy("nearest deadline"),
}


def policies() -> list[tuple[str, str]]:
    """Return the orders in which a queue serves its jobs, as the choices of a menu."""
    return [(one.value, str(words)) for one, words in POLICIES.items()]


def _resources(*amounts: Mapping[str, Any]) -> list[str]:
    others = {
        name for one in amounts for kind in AMOUNTS for name in one[kind] if name not in RESOURCES
    }
    return [*RESOURCES, *sorted(others)]


def _flag(value: object) -> str:
    return "yes" if value else "no"


def _edit(item: ItemForm) -> QueueEdit | None:
    wanted: dict[str, Any] = {}
    for number in NUMBERS:
        one = item.inputs[number]
        if one.is_changed:
            wanted[number] = _number(one)
    wanted |= {kind: found for kind in AMOUNTS if (found := _amounts(item, kind)) is not None}
    if item.inputs["policy"].is_changed:
        wanted["policy"] = item.inputs["policy"].value
    for flag in FLAGS:
        if item.inputs[flag].is_changed:
            wanted[flag] = item.inputs[flag].value == "yes"
    wanted = {name: value for name, value in wanted.items() if value is not None}
    if not wanted:
        return None
    return QueueEdit(
        queue_id=UUID(item.id), expected_version=item.version, base=item.base, **wanted
    )


def _amounts(item: ItemForm, kind: str) -> dict[str, int] | None:
    """Return all amounts of min or max; None if none of them is changed."""
    fields = {
        key.partition(".")[2]: one for key, one in item.inputs.items() if key.startswith(f"{kind}.")
    }
    if not any(one.is_changed for one in fields.values()):
        return None
    return {
        resource: found
        for resource, one in fields.items()
        if (found := _amount(one, resource)) is not None
    }


def _number(one: Input) -> int | None:
    text = one.value.strip()
    if text.isdecimal() and len(text) <= LONGEST_NUMBER:
        return int(text)
    one.errors.append(sentence("not_a_quantity", {"value": text, "resource": one.label}))
    return None


def _amount(one: Input, resource: str) -> int | None:
    text = one.value.strip()
    if not text:
        return None
    found, problem = typed_amount(text, resource)
    if problem:
        one.errors.append(problem)
        return None
    return found


def _input_at(item: ItemForm, path: str) -> Input | None:
    """Return the field of a problem's path: `min[cpu]`, `min.cpu`, `weight`, `min`."""
    head, _sep, rest = path.replace("[", ".").replace("]", "").partition(".")
    exact = item.inputs.get(f"{head}.{rest}") if rest else item.inputs.get(head)
    return exact or next(
        (one for key, one in item.inputs.items() if key.startswith(f"{head}.")), None
    )


def _base(text: str) -> dict[str, Any] | None:
    try:
        base = json.loads(text)
    except ValueError:
        return None
    if not isinstance(base, dict) or set(base) != set(FIELDS):
        return None
    return base if all(isinstance(base[name], dict) for name in AMOUNTS) else None


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Line:
    """One row of a table of differences, as text."""

    queue: str
    field: str
    old: str
    new: str
    now: str = ""
    key: str = ""
    """`<queue id>:<field>`, what a choice between `new` and `now` is called by."""


def lines(row: ChangeSet) -> list[Line]:
    """Return what a change set changes, one line a number."""
    found = []
    for item in row.items.all():
        for name, new in item.new.items():
            found += [
                Line(item.queue_name, label, old, wanted)
                for label, old, wanted in _texts(name, item.old.get(name), new)
            ]
    return found


def conflict_lines(differences: Sequence[QueueDifference]) -> list[Line]:
    """Return the fields that others changed since, as seen, as wanted and as they are now."""
    return [
        Line(
            one.queue.name,
            _label(each.field),
            _whole(each.field, each.base),
            _whole(each.field, each.yours),
            _whole(each.field, each.theirs),
            f"{one.queue.id}:{each.field}",
        )
        for one in differences
        for each in one.fields
        if each.theirs != each.base
    ]


def chosen_theirs(post: Any) -> list[tuple[UUID, str]]:
    """Return the fields of which the present value shall stay."""
    return [
        (UUID(queue_id), name)
        for key, value in post.items()
        if value == "theirs" and key.startswith("keep-")
        for queue_id, _sep, name in [key.removeprefix("keep-").partition(":")]
        if _is_uuid(queue_id) and name in FIELDS
    ]


def _texts(name: str, old: Any, new: Any) -> list[tuple[str, str, str]]:
    if name not in AMOUNTS:
        return [(_label(name), _value(name, old), _value(name, new))]
    label = _label(name)
    return [
        (
            f"{label} {resource_name(one)}",
            amount((old or {}).get(one), one),
            amount(new.get(one), one),
        )
        for one in sorted({*(old or {}), *new})
        if (old or {}).get(one) != new.get(one)
    ]


def _whole(name: str, value: Any) -> str:
    if name not in AMOUNTS:
        return _value(name, value)
    parts = [f"{resource_name(one)} {amount(value[one], one)}" for one in sorted(value)]
    return ", ".join(parts) or UNKNOWN


def _value(name: str, value: Any) -> str:
    if name in FLAGS:
        return _("yes") if value else _("no")
    if name == "policy" and value in QueuePolicy.values:
        return str(POLICIES[QueuePolicy(value)])
    return str(value)


def _label(name: str) -> str:
    labels = {
        "min": _("Min"),
        "max": _("Max"),
        "weight": _("Weight"),
        "priority": _("Priority"),
        "lend_min": _("Lends its min"),
        "reclaimable": _("Others may reclaim"),
        "policy": _("Order of jobs"),
        "are_logs_shared": _("Logs shared"),
    }
    return labels.get(name, name)


def problem_text(stored: Mapping[str, Any]) -> str:
    """Write a stored problem as a sentence, with its queue."""
    queue = str(stored["path"]).removeprefix("queues[").partition("]")[0]
    text = sentence(stored["code"], stored["params"])
    return f"{queue}: {text}" if queue else text
