"""The tiers of a cluster's network: which labels of the nodes say what lies together."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from django.db import transaction

from scheduling.domain import clusters
from scheduling.domain.placement_rules import Tier
from scheduling.models import Cluster
from tenants.domain import access, audit, notify
from tenants.domain.access import Actor, Verb
from tenants.domain.errors import Invalid, Problem

MOST_TIERS = 8
NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_VALUE = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
LABEL_VALUE = re.compile(_VALUE)
LABEL = re.compile(rf"([a-z0-9]([-a-z0-9.]{{0,251}}[a-z0-9])?/)?{_VALUE}")


def tiers_of(cluster: Cluster) -> tuple[Tier, ...]:
    """Return a cluster's tiers, the nearest first."""
    return tuple(Tier(**one) for one in cluster.network_tiers)


def problems_of(tiers: Sequence[Tier]) -> list[Problem]:
    """Return what is wrong with tiers; paths count from `tiers[0]`."""
    problems: list[Problem] = []
    if len(tiers) > MOST_TIERS:
        problems.append(Problem("tiers", "too_many", {"count": len(tiers), "limit": MOST_TIERS}))
    names, labels = Counter(t.name for t in tiers), Counter(t.label for t in tiers)
    for number, tier in enumerate(tiers):
        if not NAME.fullmatch(tier.name):
            problems.append(Problem(f"tiers[{number}].name", "tier_name", {"name": tier.name[:63]}))
        elif names[tier.name] > 1:
            problems.append(Problem(f"tiers[{number}].name", "tier_repeated", {"name": tier.name}))
        if not LABEL.fullmatch(tier.label):
            problems.append(
                Problem(f"tiers[{number}].label", "tier_label", {"label": tier.label[:100]})
            )
        elif labels[tier.label] > 1:
            problems.append(
                Problem(f"tiers[{number}].label", "tier_repeated", {"name": tier.label})
            )
    return problems


def edit(
    *,
    actor: Actor,
    cluster_id: UUID,
    tiers: Sequence[Tier],
    expected_version: int,
    now: datetime,
    reason: str = "",
) -> tuple[Tier, ...]:
    """Put other tiers in force from the next cycle on; none: the network has no domains.

    Raises:
        Denied, NotFound: only who may change the installation's settings may do this.
        Invalid: a name or label is not possible or stands twice.
        Conflict: the cluster was changed since `expected_version` was read.
    """
    access.require(actor, Verb.SETTINGS_EDIT, None, what="cluster")
    problems = problems_of(tiers)
    if problems:
        raise Invalid(problems)
    with transaction.atomic():
        cluster = clusters.locked(
            cluster_id, expected_version, lambda row: {"tiers": row.network_tiers}
        )
        before = cluster.network_tiers
        cluster.network_tiers = [{"name": tier.name, "label": tier.label} for tier in tiers]
        cluster.version += 1
        cluster.save(update_fields=["network_tiers", "version"])
        audit.record(
            actor=actor,
            action="cluster.network_tiers",
            subject=cluster,
            before={"tiers": before},
            after={"tiers": cluster.network_tiers},
            unit=None,
            now=now,
            reason=reason,
        )
        notify.notify(notify.SCHEDULE, str(cluster_id))
    return tuple(tiers)
