"""The form of a queue's placement: groups of nodes and amounts as people write them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from controlplane.forms.people import TextForm
from controlplane.forms.queues import RESOURCES, amount_text, typed_amount
from controlplane.units import resource_name
from scheduling.domain.queue_placement import KINDS, Amounts, NodeGroups, Placement
from scheduling.spec.org_file import SHORT_NAMES
from tenants.domain.errors import Conflict, Invalid

DESERVED = "deserved."
SEPARATORS = re.compile(r"[\s,]+")
_SHORT = {resource: short for short, resource in SHORT_NAMES.items()}


@dataclass(frozen=True, slots=True)
class Field:
    """A field of the form."""

    name: str
    label: str | Promise
    help: str | Promise = ""
    placeholder: str = ""


GROUPS = (
    Field(
        "required",
        _("Runs on the node groups"),
        _("Tried first. Its jobs run on the groups of the first three fields and on no others."),
        "a100, h100",
    ),
    Field("preferred", _("Prefers the node groups"), _("Tried next.")),
    Field("avoided", _("Avoids the node groups"), _("Tried last.")),
    Field("forbidden", _("Keeps off the node groups"), _("With only this stated it runs nowhere.")),
)


def form_of_placement(stated: Placement) -> TextForm:
    """Return the form as the queue is now."""
    groups, deserved = stated.node_groups, stated.stated_deserved or {}
    values = {kind: ", ".join(getattr(groups, kind)) for kind in KINDS}
    values["limits"] = "\n".join(_limit(one, groups.limits[one]) for one in sorted(groups.limits))
    values |= {
        f"{DESERVED}{resource}": amount_text(deserved.get(resource), resource)
        for resource in (*RESOURCES, *sorted(deserved.keys() - {*RESOURCES}))
    }
    return TextForm({**values, "version": str(stated.version), "reason": ""})


def form_of_post(post: Any) -> TextForm:
    """Read the form from a POST (a QueryDict); every stated resource has its field."""
    stated = {f"{DESERVED}{resource}" for resource in RESOURCES}
    stated |= {name for name in post if name.startswith(DESERVED)}
    names = (*KINDS, "limits", *sorted(stated), "version", "reason")
    return TextForm({name: post.get(name, "") for name in names})


def deserved_fields(form: TextForm) -> list[Field]:
    """Return a field for each resource of which an amount may be stated."""
    given = [name.removeprefix(DESERVED) for name in form.values if name.startswith(DESERVED)]
    known = [*RESOURCES, *(one for one in given if one not in RESOURCES)]
    return [_KNOWN.get(one) or Field(f"{DESERVED}{one}", resource_name(one)) for one in known]


_KNOWN = {
    "nvidia.com/gpu": Field(f"{DESERVED}nvidia.com/gpu", _("GPUs"), placeholder="8"),
    "cpu": Field(f"{DESERVED}cpu", _("CPUs"), placeholder="64"),
    "memory": Field(f"{DESERVED}memory", _("Memory"), placeholder="512Gi"),
}


def groups_of(form: TextForm) -> NodeGroups:
    """Read the groups; what cannot be read is said at its field."""
    return NodeGroups(
        required=_names(form, "required"),
        preferred=_names(form, "preferred"),
        avoided=_names(form, "avoided"),
        forbidden=_names(form, "forbidden"),
        limits=_limits(form),
    )


def deserved_of(form: TextForm) -> dict[str, int] | None:
    """Read what is stated as deserved; None: nothing is."""
    deserved = {}
    for one in deserved_fields(form):
        if text := form.text(one.name):
            resource = one.name.removeprefix(DESERVED)
            deserved[resource] = _amount(form, one.name, resource, text)
    return deserved or None


def take(form: TextForm, error: Conflict | Invalid) -> None:
    """Put a refusal at its fields; after a conflict what was typed may be sent again."""
    paths = [problem.path for problem in error.problems] if isinstance(error, Invalid) else []
    form.take(error, {path: _field_of(path) for path in paths})
    if isinstance(error, Conflict):
        form.values["version"] = str(getattr(error.current, "version", form.text("version")))


def _field_of(path: str) -> str:
    """Return the field of `node_groups.limits.a.cpu` or `queues[a].min[cpu]`."""
    if path.startswith("node_groups."):
        return path.split(".")[1]
    resource = path.rpartition("].")[2].partition("[")[2].removesuffix("]")
    return f"{DESERVED}{resource}"


def _names(form: TextForm, name: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(None, SEPARATORS.split(form.text(name)))))


def _limits(form: TextForm) -> dict[str, Amounts]:
    limits: dict[str, Amounts] = {}
    for line in filter(None, map(str.strip, form.text("limits").splitlines())):
        group, _colon, rest = line.partition(":")
        pairs = list(filter(None, SEPARATORS.split(rest)))
        if not group.strip() or not pairs or not all(map(_is_pair, pairs)):
            form.say("limits", "group_limit", {"line": line[:80]})
        else:
            limits[group.strip()] = _pairs(form, pairs)
    return limits


def _is_pair(text: str) -> bool:
    resource, sign, amount = text.partition("=")
    return bool(resource and sign and amount)


def _pairs(form: TextForm, pairs: Sequence[str]) -> Mapping[str, int]:
    amounts = {}
    for resource, _sign, amount in (pair.partition("=") for pair in pairs):
        name = SHORT_NAMES.get(resource, resource)
        amounts[name] = _amount(form, "limits", name, amount)
    return amounts


def _amount(form: TextForm, field: str, resource: str, text: str) -> int:
    amount, problem = typed_amount(text, resource)
    if problem:
        form.errors.setdefault(field, []).append(problem)
    return amount


def _limit(group: str, amounts: Amounts) -> str:
    pairs = (
        f"{_SHORT.get(resource, resource)}={amount_text(amount, resource)}"
        for resource, amount in sorted(amounts.items())
    )
    return f"{group}: {' '.join(pairs)}"
