"""A cluster's scheduler configuration: checked before it is in force, kept in versions.

The text is YAML as Volcano's `volcano-scheduler.conf`; an empty one is Terrace's default. A cycle
reads it anew when the cluster's row changed, so an edit takes effect at the next one. A text with
problems is never stored here; what reaches the row by another way and has some leaves the last
good one in force (`cycles.Configuration`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import yaml
from django.db import transaction
from django.db.models import Max

from scheduling.domain import clusters
from scheduling.engine.config import (
    DEFAULT_CONFIG,
    DEFAULT_OFF,
    FLAG_BY_KEY,
    ConfigProblem,
    parse_config,
)
from scheduling.engine.types import Config, PluginConfig
from scheduling.models import Cluster, SchedulerConfig
from tenants.domain import access, audit, notify
from tenants.domain.access import Actor, Verb
from tenants.domain.errors import Invalid, NotFound, Problem

LONGEST_TEXT = 100_000
HIERARCHICAL = frozenset({"capacity", "drf", "nodegroup"})
"""Plugins to which the flag means anything; it is off where nobody says otherwise."""
KEY_BY_FLAG = {flag: key for key, flag in reversed(FLAG_BY_KEY.items())}


@dataclass(frozen=True, slots=True)
class InForce:
    """The configuration that the next cycle goes by; `text` is never empty."""

    text: str
    is_default: bool
    version: int
    """Of the cluster's row: what an edit names as the state that it saw."""
    problem: str = ""
    """What was wrong with a later text that did not come through `edit`."""
    notes: tuple[Problem, ...] = ()
    """What it says that changes nothing."""


def in_force(*, actor: Actor, cluster_id: UUID) -> InForce:
    """Return the configuration with the version that an edit must name.

    Raises:
        NotFound: there is no such cluster, or the actor may not read the installation's settings.
    """
    access.require(actor, Verb.SETTINGS_READ, None, what="cluster")
    cluster = Cluster.objects.filter(id=cluster_id).first()
    if cluster is None:
        raise NotFound("cluster")
    is_default = not cluster.scheduler_config.strip()
    return InForce(
        as_text(DEFAULT_CONFIG) if is_default else cluster.scheduler_config,
        is_default,
        cluster.version,
        cluster.config_problem,
        notes=() if is_default else tuple(told(parse_config(cluster.scheduler_config).notes)),
    )


def versions(*, actor: Actor, cluster_id: UUID, limit: int = 50) -> list[SchedulerConfig]:
    """Return the versions that were in force, the newest first.

    Raises:
        NotFound: the actor may not read the installation's settings.
    """
    access.require(actor, Verb.SETTINGS_READ, None, what="cluster")
    rows = SchedulerConfig.objects.filter(cluster_id=cluster_id).select_related("author")
    return list(rows.order_by("-number")[:limit])


def problems_of(text: str) -> list[Problem]:
    """Return what is wrong with a text; paths begin with `text` and go on as in the text."""
    if len(text) > LONGEST_TEXT:
        return [Problem("text", "too_long", {"length": len(text), "max": LONGEST_TEXT})]
    if not text.strip():
        return []
    return told(parse_config(text).problems)


def told(found: Iterable[ConfigProblem]) -> list[Problem]:
    """Return what was found in a text, as problems of this package."""
    return [
        Problem(
            f"text.{one.path}" if one.path else "text",
            f"config_{one.code}",
            {k: _plain(v) for k, v in one.params.items()},
        )
        for one in found
    ]


def _plain(value: object) -> str | int | float:
    if isinstance(value, (str, int, float)):
        return value
    return ", ".join(str(one) for one in value) if isinstance(value, (list, tuple)) else str(value)


def check(*, actor: Actor, text: str) -> list[Problem]:
    """Check a text without putting it in force; return what it says that changes nothing.

    Raises:
        Denied, NotFound: only who may change the installation's settings may do this.
        Invalid: the text has problems; the places are named.
    """
    access.require(actor, Verb.SETTINGS_EDIT, None, what="cluster")
    problems = problems_of(text)
    if problems:
        raise Invalid(problems)
    return told(parse_config(text).notes) if text.strip() else []


def edit(
    *,
    actor: Actor,
    cluster_id: UUID,
    text: str,
    expected_version: int,
    now: datetime,
    reason: str = "",
) -> SchedulerConfig:
    """Put a configuration in force from the next cycle on; an empty text is the default.

    Raises:
        Denied, NotFound: only who may change the installation's settings may do this.
        Invalid: the text has problems; the places are named.
        Conflict: the cluster was changed since `expected_version` was read.
    """
    check(actor=actor, text=text)
    with transaction.atomic():
        cluster = clusters.locked(
            cluster_id, expected_version, lambda row: {"text": row.scheduler_config}
        )
        before = cluster.scheduler_config
        cluster.scheduler_config = text
        cluster.config_problem = ""
        cluster.version += 1
        cluster.save(update_fields=["scheduler_config", "config_problem", "version"])
        last = SchedulerConfig.objects.filter(cluster=cluster).aggregate(n=Max("number"))["n"]
        row = SchedulerConfig.objects.create(
            cluster=cluster,
            number=(last or 0) + 1,
            text=text,
            author_id=actor.user_id,
            reason=reason,
            created_at=now,
        )
        audit.record(
            actor=actor,
            action="cluster.scheduler_config",
            subject=cluster,
            before={"text": before},
            after={"text": text, "number": row.number},
            unit=None,
            now=now,
            reason=reason,
        )
        notify.notify(notify.SCHEDULE, str(cluster_id))
    return row


def as_text(config: Config) -> str:
    """Write a configuration as the YAML that `parse_config` reads."""
    document: dict[str, object] = {
        "actions": ", ".join(action.name for action in config.actions),
        "tiers": [{"plugins": [_plugin(one) for one in tier]} for tier in config.tiers],
    }
    arguments = [
        {"name": action.name, "arguments": dict(action.arguments)}
        for action in config.actions
        if action.arguments
    ]
    if arguments:
        document["configurations"] = arguments
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True)


def _plugin(plugin: PluginConfig) -> dict[str, object]:
    written: dict[str, object] = {"name": plugin.name}
    for flag in sorted(plugin.disabled - DEFAULT_OFF):
        written[KEY_BY_FLAG[flag]] = False
    if "hierarchy" not in plugin.disabled and plugin.name in HIERARCHICAL:
        written[KEY_BY_FLAG["hierarchy"]] = True
    if plugin.arguments:
        written["arguments"] = dict(plugin.arguments)
    return written
