"""The tdm plugin: nodes that are lent for certain hours of the day and given back after them."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from scheduling.engine.budgets import evictions_left
from scheduling.engine.callbacks import Vote
from scheduling.engine.journal import Claim, Unit
from scheduling.engine.plugin import Plugin
from scheduling.engine.session import Session
from scheduling.engine.shapes import Bools, Float64, Shape
from scheduling.engine.types import PluginConfig, Task, TaskState
from scheduling.engine.views import JobView, RoleView

ZONE = "volcano.sh/revocable-zone"
"""Label of a node: its zone. Annotation of a role: `*` if its tasks may run in any zone."""

WINDOW = "tdm.revocable-zone."

SCORE = 100.0

Held = tuple[RoleView, Task, int]


class RevocableNodes(Plugin):
    """Open revocable nodes in their hours to roles that accept them; withdraw tasks afterwards.

    Arguments `tdm.revocable-zone.<zone>: "22:00-06:00"`; an end not after its start is of the next
    day. The hours are those of `tdm.time-zone` (UTC), summer time included. Withdrawals and
    preemptions keep to the job's budget, given by its annotations `volcano.sh/jdb-min-available`
    or `jdb-max-unavailable` (a number, or a percentage of all its tasks); without either one task
    at a time.
    Source: Volcano pkg/scheduler/plugins/tdm; there the hours after midnight of a window that
    began the day before are not recognised, and tasks are withdrawn once per `tdm.evict.period`.
    """

    name = "tdm"

    def __init__(self, session: Session, config: PluginConfig) -> None:
        """Find out which zones are open."""
        super().__init__(session, config)
        zone = ZoneInfo(self.arguments.get("tdm.time-zone", "UTC"))
        clock = datetime.fromtimestamp(session.now, zone)
        minute = clock.hour * 60 + clock.minute
        self.open = {
            key.removeprefix(WINDOW)
            for key, text in config.arguments.items()
            if key.startswith(WINDOW) and is_open(text, minute)
        }
        codes, self.column = session.tables.nodes.label(ZONE)
        self.zones = list(codes)

    def _by_zone(self, *, shut: bool, open_: bool, ordinary: bool) -> Bools:
        by_zone = [open_ if zone in self.open else shut for zone in self.zones]
        result: Bools = np.array([*by_zone, ordinary], dtype=bool)[self.column]
        return result

    def predicate(self, shape: Shape) -> Bools:
        """Return bool[N]: ordinary nodes, and open revocable ones where the role accepts them."""
        return self._by_zone(shut=False, open_=_accepts(shape.annotations), ordinary=True)

    def node_order(self, shape: Shape, nodes: Any) -> Float64:
        """Return float64 scores: 100 on an open revocable node for a role that accepts it."""
        is_wanted = self._by_zone(shut=False, open_=_accepts(shape.annotations), ordinary=False)
        scores: Float64 = np.where(is_wanted[nodes], SCORE, 0.0)
        return scores

    def job_order(self, job: JobView) -> int:
        """Put jobs first that must not be evicted."""
        return 1 if job.job.preemptable else 0

    def job_pipelined(self, job: JobView) -> Vote:
        """Permit waiting on promised room if that completes the gang."""
        return Vote.PERMIT if job.is_pipelined() else Vote.REJECT

    def job_starving(self, job: JobView) -> bool:
        """Say whether a job that must not be evicted still has tasks waiting."""
        return not job.job.preemptable and job.pending_count > 0

    def preemptable(self, claim: Claim, unit: Unit) -> bool:
        """Allow running tasks off revocable nodes, within the job's budget, for firm tasks only."""
        role = claim.role.role
        if role.preemptable or _accepts(role.annotations):
            return False
        for victim, task, node in unit.tasks:
            if node < 0 or self.column[node] >= 0 or not _is_revocable(victim, task):
                return False
        gone = claim.removed.by_job.get(unit.job.key, 0)
        return gone + len(unit.tasks) <= self.budget(unit.job)

    def victims(self) -> list[Unit]:
        """Return the tasks to withdraw from the nodes of zones that are shut."""
        shut = self._by_zone(shut=True, open_=False, ordinary=False)
        keys = {
            key
            for node in np.flatnonzero(shut)
            for key in self.session.tables.rows_by_node.get(int(node), ())
        }
        found = []
        for key in sorted(keys):
            job = self.session.view(key)
            if job is None:
                continue
            held = [
                h
                for h in self.session.held_tasks(job)
                if h[2] >= 0 and shut[h[2]] and _is_revocable(h[0], h[1])
            ]
            held.sort(key=lambda h: (h[0].role.priority, -h[1].index, h[1].key))
            found += [Unit(job, (h,)) for h in held[: self.budget(job)]]
        return found

    def budget(self, job: JobView) -> int:
        """Return how many more tasks of a job may be evicted now."""
        left = evictions_left(job.job, self.session.evicted)
        return 1 if left is None else left


def is_open(window: str, minute: int) -> bool:
    """Return whether a minute of the day lies in a window such as `22:00-06:00`."""
    match = re.fullmatch(r"\s*(\d{1,2}):(\d{2})\s*-\s*(\d{1,2}):(\d{2})\s*", window)
    if match is None:
        return False
    start = int(match[1]) * 60 + int(match[2])
    end = int(match[3]) * 60 + int(match[4])
    if end <= start:
        return minute >= start or minute < end
    return start <= minute < end


def _accepts(annotations: Any) -> bool:
    return bool(annotations.get(ZONE) == "*")


def _is_revocable(role: RoleView, task: Task) -> bool:
    return task.state is TaskState.RUNNING and role.role.preemptable
