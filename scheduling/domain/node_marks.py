"""Labels and taints of a node: what tasks choose it by, and what keeps them off it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from uuid import UUID

from scheduling.domain import nodes
from scheduling.domain.deeds import Deed
from scheduling.domain.network_tiers import LABEL, LABEL_VALUE
from scheduling.domain.snapshot_values import HOSTNAME
from scheduling.models import Node
from tenants.domain.errors import Invalid, Problem

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
MOST = 100
"""Labels, and taints, of one node."""


@dataclass(frozen=True, slots=True)
class Taint:
    """Keeps off who does not tolerate it; PreferNoSchedule only makes a node the worse choice."""

    key: str
    value: str = ""
    effect: str = EFFECTS[0]


def edit(
    *,
    deed: Deed,
    node_id: UUID,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Taint] | None = None,
    expected_version: int,
) -> Node:
    """Replace a node's labels, its taints, or both, from the next cycle on; what runs goes on.

    The label with its host name is its own and stays.

    Raises:
        Denied, NotFound: only who administers nodes may do this.
        Invalid: a key, value or effect that cannot be, one twice, or too many.
        Conflict: the node was changed since `expected_version` was read.
    """
    fields: dict[str, object] = {}
    problems: list[Problem] = []
    if labels is not None:
        own = {key: value for key, value in labels.items() if key != HOSTNAME}
        problems += _problems_of_labels(own)
        fields["labels"] = own
    if taints is not None:
        problems += _problems_of_taints(taints)
        fields["taints"] = [asdict(taint) for taint in taints]
    if problems:
        nodes.require_admin(deed.actor)
        raise Invalid(problems)
    return nodes.edit(deed, "node.marks", node_id, expected_version=expected_version, **fields)


def _problems_of_labels(labels: Mapping[str, str]) -> list[Problem]:
    problems = [
        Problem(f"labels.{key[:80]}", "label_key", {"key": key[:80]})
        for key in labels
        if not LABEL.fullmatch(key)
    ]
    problems += [
        Problem(f"labels.{key[:80]}", "label_value", {"value": value[:80]})
        for key, value in labels.items()
        if value and not LABEL_VALUE.fullmatch(value)
    ]
    return problems + _too_many("labels", len(labels))


def _problems_of_taints(taints: Sequence[Taint]) -> list[Problem]:
    problems: list[Problem] = []
    named = Counter((taint.key, taint.effect) for taint in taints)
    for number, taint in enumerate(taints):
        path = f"taints[{number}]"
        if not LABEL.fullmatch(taint.key):
            problems.append(Problem(f"{path}.key", "label_key", {"key": taint.key[:80]}))
        if taint.value and not LABEL_VALUE.fullmatch(taint.value):
            problems.append(Problem(f"{path}.value", "label_value", {"value": taint.value[:80]}))
        if taint.effect not in EFFECTS:
            params = {"effect": taint.effect[:80], "known": ", ".join(EFFECTS)}
            problems.append(Problem(f"{path}.effect", "taint_effect", params))
        if named[taint.key, taint.effect] > 1:
            problems.append(Problem(path, "taint_twice", {"key": taint.key[:80]}))
    return problems + _too_many("taints", len(taints))


def _too_many(path: str, count: int) -> list[Problem]:
    return [Problem(path, "too_many", {"count": count, "limit": MOST})] if count > MOST else []
