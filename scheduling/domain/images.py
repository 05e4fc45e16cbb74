"""The table that maps image names to runtimes of the nodes, edited as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.db.models import F, Q

from scheduling.domain import clusters
from scheduling.models import Cluster, ImageRule, Node
from scheduling.models.node import NodeState
from tenants.domain import access, audit, notify
from tenants.domain.access import Actor, Verb
from tenants.domain.errors import Invalid, Problem
from tenants.models import OrgClosure, OrgUnit

MOST_RULES = 500
LONGEST_PATTERN = 300
LONGEST_RUNTIME = 100


@dataclass(frozen=True, slots=True)
class RuleEdit:
    """One line of the table: images like `pattern` are served by `runtime`.

    `pattern` is shell-style (`*`, `?`, `[...]`); `unit_id` limits the rule to jobs of a subtree.
    """

    pattern: str
    runtime: str
    unit_id: UUID | None = None


def rules(*, actor: Actor, cluster_id: UUID) -> list[ImageRule]:
    """Return the table in the order in which it decides; rules of foreign units are left out.

    Raises:
        NotFound: the actor may not see the installation's runtimes.
    """
    access.require(actor, Verb.RUNTIME_READ, None, what="cluster")
    rows = _rows(cluster_id)
    scope = access.reads(actor, Verb.ORG_READ)
    if scope.sees_everything:
        return rows
    units = scope.readable_units
    known = set(
        OrgClosure.objects.filter(Q(ancestor__in=units) | Q(descendant__in=units)).values_list(
            "ancestor_id", "descendant_id"
        )
    )
    near = {unit_id for link in known for unit_id in link}
    return [row for row in rows if row.unit_id is None or row.unit_id in near]


def offered_runtimes(cluster_id: UUID) -> dict[str, int]:
    """Return how many nodes offer each runtime, by its name."""
    nodes = Node.objects.filter(cluster_id=cluster_id).exclude(state=NodeState.REMOVED)
    offered = nodes.exclude(runtimes=[]).values_list("runtimes", flat=True)
    count = Counter(str(one.get("name", "")) for runtimes in offered for one in runtimes)
    return {name: count[name] for name in sorted(count) if name}


def unit_paths() -> dict[UUID, str]:
    """Return each unit's names from its tenant down, `lab/vision`; where two are alike, their ids.

    For who edits the table: no rights are asked here. One query, linear in the units.
    """
    units = {unit.id: unit for unit in OrgUnit.objects.only("id", "name", "parent")}
    paths: dict[UUID, str] = {}

    def path(unit_id: UUID) -> str:
        if unit_id not in paths:
            unit = units[unit_id]
            above = f"{path(unit.parent_id)}/" if unit.parent_id is not None else ""
            paths[unit_id] = above + unit.name
        return paths[unit_id]

    count = Counter(path(unit_id) for unit_id in units)
    return {
        unit_id: text if count[text] == 1 else str(unit_id)
        for unit_id, text in sorted(paths.items(), key=lambda pair: pair[1])
    }


def replace_rules(
    *,
    actor: Actor,
    cluster_id: UUID,
    edits: Sequence[RuleEdit],
    expected_version: int,
    now: datetime,
    reason: str = "",
) -> list[ImageRule]:
    """Put a new table in the place of the old one; the next cycle plans by it.

    Raises:
        Denied, NotFound: only who may administer runtimes may do this.
        Invalid: a rule is empty, too long, or can never be reached.
        Conflict: the table was changed since `expected_version` of the cluster was read.
    """
    access.require(actor, Verb.RUNTIME_ADMIN, None, what="cluster")
    problems = problems_of(edits)
    if problems:
        raise Invalid(problems)
    with transaction.atomic():
        cluster = clusters.locked(
            cluster_id, expected_version, lambda row: _as_lines(_rows(row.id))
        )
        before = _as_lines(_rows(cluster_id))
        Cluster.objects.filter(id=cluster_id).update(version=F("version") + 1)
        ImageRule.objects.filter(cluster_id=cluster_id).delete()
        rows = ImageRule.objects.bulk_create(
            ImageRule(
                cluster_id=cluster_id,
                unit_id=edit.unit_id,
                position=position,
                pattern=edit.pattern,
                runtime=edit.runtime,
            )
            for position, edit in enumerate(edits, start=1)
        )
        audit.record(
            actor=actor,
            action="cluster.image_rules",
            subject=cluster,
            before={"rules": before},
            after={"rules": _as_lines(rows)},
            unit=None,
            now=now,
            reason=reason,
        )
        notify.notify(notify.SCHEDULE, str(cluster_id))
    return rows


def _rows(cluster_id: UUID) -> list[ImageRule]:
    rows = ImageRule.objects.filter(cluster_id=cluster_id).select_related("unit")
    return list(rows.order_by("position"))


def problems_of(edits: Sequence[RuleEdit]) -> list[Problem]:
    """Return every rule of the table that a new one breaks; paths count from `rules[0]`."""
    problems: list[Problem] = []
    if len(edits) > MOST_RULES:
        problems.append(Problem("rules", "too_many", {"count": len(edits), "limit": MOST_RULES}))
    units = {edit.unit_id for edit in edits if edit.unit_id is not None}
    known = set(OrgUnit.objects.filter(id__in=units).values_list("id", flat=True))
    seen: dict[tuple[str, UUID | None], int] = {}
    for number, edit in enumerate(edits, start=1):
        place = f"rules[{number - 1}]"
        problems += _length_problems(f"{place}.pattern", edit.pattern, LONGEST_PATTERN)
        problems += _length_problems(f"{place}.runtime", edit.runtime, LONGEST_RUNTIME)
        if edit.unit_id is not None and edit.unit_id not in known:
            problems.append(Problem(f"{place}.unit_id", "unit_missing"))
        first = seen.setdefault((edit.pattern, edit.unit_id), number)
        if first != number:
            problems.append(
                Problem(f"{place}.pattern", "rule_repeated", {"first": first, "number": number})
            )
    return problems


def _length_problems(place: str, text: str, longest: int) -> list[Problem]:
    if not text.strip():
        return [Problem(place, "required")]
    if len(text) > longest:
        return [Problem(place, "too_long", {"length": len(text), "max": longest})]
    return []


def _as_lines(rows: Sequence[ImageRule]) -> list[dict[str, str | None]]:
    """Write the table as it is audited and shown in a conflict."""
    return [
        {
            "pattern": row.pattern,
            "runtime": row.runtime,
            "unit_id": str(row.unit_id) if row.unit_id else None,
        }
        for row in rows
    ]
