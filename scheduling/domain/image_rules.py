"""Images and runtimes: which runtime of the agent serves what an image asks for, by the rules."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any
from uuid import UUID

from scheduling.models import ImageRule
from tenants.models import OrgClosure

UNSERVED = "image:"
"""Prefix of an image that no rule maps to a runtime: no node offers it, and the reason says so."""


@dataclass(frozen=True, slots=True)
class Rule:
    """An image rule with the units that it holds for; None: all."""

    pattern: str
    runtime: str
    units: frozenset[UUID] | None


def rules_of(cluster_id: UUID) -> tuple[Rule, ...]:
    """Return the image rules of a cluster in the order in which they decide."""
    rows = list(ImageRule.objects.filter(cluster_id=cluster_id).order_by("position"))
    below: defaultdict[UUID, set[UUID]] = defaultdict(set)
    units = [row.unit_id for row in rows if row.unit_id is not None]
    if units:
        links = OrgClosure.objects.filter(ancestor__in=units)
        for ancestor, descendant in links.values_list("ancestor_id", "descendant_id"):
            below[ancestor].add(descendant)
    return tuple(
        Rule(row.pattern, row.runtime, frozenset(below[row.unit_id]) if row.unit_id else None)
        for row in rows
    )


def runtime_wanted(part: Mapping[str, Any], unit_id: UUID, rules: tuple[Rule, ...]) -> str:
    """Return the runtime that a role needs, empty for any.

    An image is served by the runtime of the first rule that matches; one that no rule matches
    gives a name that no node offers. Without an image the role may name a runtime itself.
    """
    image = part.get("image") or ""
    if not image:
        return str(part.get("runtime") or "")
    for rule in rules:
        is_meant = rule.units is None or unit_id in rule.units
        if is_meant and fnmatchcase(image, rule.pattern):
            return rule.runtime
    return UNSERVED + image
