"""What a cycle looks at: the rows of one cluster as the engine's frozen values, kept warm.

`changed_xid` of a row is the transaction that last wrote it. A refresh remembers the xmin of its
own database snapshot and next time reads only rows with `changed_xid >=` that: every row committed
since, however transactions overlapped. An unchanged job, node or queue stays the same object, so
that the engine keeps what it computed for it. Tasks and holds carry no mark: whoever writes them
writes their job too.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connection, transaction

from scheduling.domain import placement_rules
from scheduling.domain.bare_rows import BareRows
from scheduling.domain.errors import IncompleteSnapshotError
from scheduling.domain.image_rules import Rule, rules_of
from scheduling.domain.quota_walls import KeptWalls
from scheduling.domain.snapshot_values import (
    STRIKES,
    Surroundings,
    job_values,
    node_value,
    queue_value,
)
from scheduling.engine import types as engine
from scheduling.engine.garbage import without_collecting
from scheduling.lifecycle.states import SCHEDULABLE_PHASES
from scheduling.models import (
    Device,
    Job,
    Node,
    Queue,
    Reservation,
)
from scheduling.models.node import NodeState


@dataclass(slots=True)
class SnapshotCache:
    """The warm copy of one cluster; `refresh` brings it up to date and gives the snapshot."""

    since: int = 0
    nodes: dict[UUID, engine.Node] = field(default_factory=dict)
    queues: dict[UUID, engine.Queue] = field(default_factory=dict)
    jobs: dict[UUID, engine.Job] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    """Job key -> version of its row when it was read."""
    unreadable: dict[UUID, str] = field(default_factory=dict)
    """Jobs whose rows make no job, and what is wrong; what they hold counts, they want nothing."""
    rules: tuple[Rule, ...] = ()
    network_tiers: str = "[]"
    domains: tuple[engine.HyperNode, ...] = ()
    """Of the network, as the tiers and the nodes' labels draw them."""
    budgets: dict[UUID, engine.DisruptionBudget] = field(default_factory=dict)
    """Of the jobs whose owners limit evictions."""
    walls: KeptWalls = field(default_factory=KeptWalls)
    loads: dict[UUID, dict[str, str]] = field(default_factory=dict)
    """Measured load by node, as its annotations; only where the configuration asks for it."""
    loads_read_at: datetime | None = None
    snapshot: engine.Snapshot | None = None

    def refresh(self, cluster_id: UUID, now: datetime) -> engine.Snapshot:
        """Read what changed since the last time, in one consistent view of the database.

        Raises:
            IncompleteSnapshotError: a row refers to something that is not there; plan nothing.
        """
        is_outermost = not connection.in_atomic_block
        with without_collecting(), transaction.atomic():
            with connection.cursor() as cursor:
                if is_outermost:  # else the caller's transaction says what is seen
                    cursor.execute(READ_ONLY)
            news = _news(cluster_id, self.since)
            if news.rules or self.rules:
                self._refresh_rules(cluster_id)
                news = _news(cluster_id, self.since)
            is_changed = news.nodes and self._refresh_nodes(cluster_id)
            is_changed |= self._refresh_network(news.network_tiers or "[]", is_changed=is_changed)
            if news.queues or news.queue_count != len(self.queues):
                is_changed |= self._refresh_queues(cluster_id)
            is_changed |= news.jobs and self._refresh_jobs(cluster_id)
            is_changed |= self._refresh_loads(cluster_id, now, is_wanted=news.wants_load)
            reservations = _reservations(cluster_id, now) if news.reservations else ()
            walls = self.walls.current(cluster_id) if news.quotas else ()
        self.since = news.xmin
        self.snapshot = self._assemble(now, reservations, walls, is_changed=is_changed)
        return self.snapshot

    def _assemble(
        self,
        now: datetime,
        reservations: tuple[engine.Reservation, ...],
        walls: tuple[engine.Quota, ...],
        *,
        is_changed: bool,
    ) -> engine.Snapshot:
        last = self.snapshot
        if last is None or is_changed:
            _require_complete(self.jobs.values(), self.queues.values(), self.nodes.values())
        is_same = last is not None and not is_changed
        return engine.Snapshot(
            now=now.timestamp(),
            nodes=last.nodes if last is not None and is_same else self._nodes_with_load(),
            queues=last.queues if last is not None and is_same else tuple(self.queues.values()),
            jobs=last.jobs if last is not None and is_same else tuple(self.jobs.values()),
            reservations=reservations,
            version=self.since,
            disruption_budgets=tuple(self.budgets.values()),
            quotas=walls,
            hypernodes=self.domains,
        )

    def _nodes_with_load(self) -> tuple[engine.Node, ...]:
        if not self.loads:
            return tuple(self.nodes.values())
        return tuple(
            replace(node, annotations=self.loads[key]) if key in self.loads else node
            for key, node in self.nodes.items()
        )

    def _refresh_loads(self, cluster_id: UUID, now: datetime, *, is_wanted: bool) -> bool:
        """Read the measured load of the nodes, every few seconds, where a plugin looks at it."""
        if not is_wanted:
            had_loads, self.loads, self.loads_read_at = bool(self.loads), {}, None
            return had_loads
        if self.loads_read_at is not None and now - self.loads_read_at < LOAD_EVERY:
            return False
        self.loads, self.loads_read_at = _loads(cluster_id, now), now
        return True

    def _refresh_network(self, tiers: str, *, is_changed: bool) -> bool:
        """Draw the domains anew where tiers or nodes changed."""
        if tiers == self.network_tiers and not (is_changed and self.domains):
            return False
        self.network_tiers = tiers
        domains = placement_rules.network_domains(
            [placement_rules.Tier(**one) for one in json.loads(tiers)], self.nodes.values()
        )
        is_other = domains != self.domains
        self.domains = domains
        return is_other

    def _refresh_rules(self, cluster_id: UUID) -> None:
        rules = rules_of(cluster_id)
        if rules != self.rules:
            # Which runtime serves a role may be another now: read all jobs again.
            self.rules, self.since, self.jobs = rules, 0, {}
            self.snapshot = None

    def _refresh_nodes(self, cluster_id: UUID) -> bool:
        rows = list(Node.objects.filter(cluster_id=cluster_id, changed_xid__gte=self.since))
        devices: defaultdict[UUID, list[Device]] = defaultdict(list)
        for device in Device.objects.filter(node__in=rows, is_present=True).order_by("index"):
            devices[device.node_id].append(device)
        gone = {row.id for row in rows if row.state == NodeState.REMOVED}
        fresh = {row.id: node_value(row, devices[row.id]) for row in rows if row.id not in gone}
        return _merge(self.nodes, fresh, gone)

    def _refresh_queues(self, cluster_id: UUID) -> bool:
        rows = Queue.objects.filter(cluster_id=cluster_id).select_related("parent")
        changed = list(rows.filter(changed_xid__gte=self.since))
        is_changed = _merge(self.queues, {row.id: queue_value(row) for row in changed}, set())
        if len(self.queues) != Queue.objects.filter(cluster_id=cluster_id).count():
            fresh = {row.id: queue_value(row) for row in rows}
            _merge(self.queues, fresh, self.queues.keys() - fresh.keys())
            return True
        return is_changed

    def _refresh_jobs(self, cluster_id: UUID) -> bool:
        around = Surroundings(
            rules=self.rules,
            queue_names={key: queue.name for key, queue in self.queues.items()},
            have_devices=any(node.devices for node in self.nodes.values()),
            have_cpu_sets=any(node.numa for node in self.nodes.values()),
        )
        is_first = self.since == 0
        condition, values = WRITTEN, [cluster_id, self.since]
        if is_first:
            condition, values = OF_INTEREST, [cluster_id]
        is_changed = False
        # What a part is made from takes ten times the room of what is kept of it.
        for part in JOBS.in_parts(condition, values, size=JOBS_AT_ONCE, are_many=is_first):
            is_changed |= self._take_jobs(part, around)
        return is_changed

    def _take_jobs(self, rows: list[Job], around: Surroundings) -> bool:
        jobs = [job for job in rows if is_of_interest(job)]
        gone = {job.id for job in rows if not is_of_interest(job)}
        for job_id in gone:
            self.versions.pop(str(job_id), None)
        values, unreadable = job_values(jobs, around, self.jobs)
        self.versions.update({values[job.id].key: job.version for job in jobs})
        for key in gone | values.keys():
            self.unreadable.pop(key, None)
        self.unreadable.update(unreadable)
        for key in self.budgets.keys() & (gone | values.keys()):
            del self.budgets[key]
        for key, value in values.items():
            budget = placement_rules.budget_of(value) if value.annotations else None
            if budget is not None:
                self.budgets[key] = budget
        return _merge(self.jobs, values, gone)


NOT_READ = (
    "reason_code",
    "reason_params",
    "reason_at",
    "message",
    "desired_state",
    "gpu_milli",
    "cpu_milli",
    "memory_bytes",
    "started_at",
    "finished_at",
    "delete_after",
)
"""Columns of a job that no cycle looks at; a third of the time of a first read."""
JOBS = BareRows(Job, without=NOT_READ)
JOBS_AT_ONCE = 250
"""So many jobs of a first read are in memory at once as rows, with their roles and tasks."""
# Between two queries of a first read 100,000 tasks become values: nobody waits for a reader.
READ_ONLY = """
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY;
SET LOCAL idle_in_transaction_session_timeout = '120s'
"""
NEWS = """
SELECT
    pg_snapshot_xmin(pg_current_snapshot())::text::bigint,
    EXISTS (SELECT 1 FROM scheduling_node
            WHERE cluster_id = %(cluster)s AND changed_xid >= %(since)s),
    EXISTS (SELECT 1 FROM scheduling_queue
            WHERE cluster_id = %(cluster)s AND changed_xid >= %(since)s),
    (SELECT count(*) FROM scheduling_queue WHERE cluster_id = %(cluster)s),
    EXISTS (SELECT 1 FROM scheduling_job WHERE changed_xid >= %(since)s),
    EXISTS (SELECT 1 FROM scheduling_reservation),
    EXISTS (SELECT 1 FROM scheduling_imagerule WHERE cluster_id = %(cluster)s),
    EXISTS (SELECT 1 FROM scheduling_quotalimit),
    (SELECT network_tiers::text FROM scheduling_cluster WHERE id = %(cluster)s),
    EXISTS (SELECT 1 FROM scheduling_cluster
            WHERE id = %(cluster)s AND scheduler_config ~ 'name"?: *"?(usage|rescheduling)')
"""
LOAD_EVERY = timedelta(seconds=15)
LOAD_SPAN = timedelta(seconds=120)
"""Measurements are averaged over so long."""
LOADS = """
SELECT node.id,
    round(avg(said.cpu_milli) * 100 / nullif((node.capacity ->> 'cpu')::bigint, 0), 1),
    round(avg(said.memory_bytes) * 100 / nullif((node.capacity ->> 'memory')::bigint, 0), 1),
    extract(epoch FROM max(said.at))
FROM scheduling_node AS node
JOIN scheduling_usage AS said ON said.node_id = node.id AND said.device_uuid = ''
    AND said.attempt_id IS NULL AND said.at > %(since)s
WHERE node.cluster_id = %(cluster)s
GROUP BY node.id
"""


class News(NamedTuple):
    """Where something was written since the last time, or is at all, asked with one query."""

    xmin: int
    nodes: bool
    queues: bool
    queue_count: int
    jobs: bool
    reservations: bool
    rules: bool
    quotas: bool
    network_tiers: str | None
    wants_load: bool
    """Whether a plugin of the configuration looks at what nodes are measured to do."""


def _news(cluster_id: UUID, since: int) -> News:
    with connection.cursor() as cursor:
        cursor.execute(NEWS, {"cluster": cluster_id, "since": since})
        return News(*cursor.fetchone())


def _loads(cluster_id: UUID, now: datetime) -> dict[UUID, dict[str, str]]:
    with connection.cursor() as cursor:
        cursor.execute(LOADS, {"cluster": cluster_id, "since": now - LOAD_SPAN})
        rows = cursor.fetchall()
    keys = (engine.CPU_PERCENT, engine.MEMORY_PERCENT, engine.MEASURED_AT)
    return {
        node_id: {key: str(value) for key, value in zip(keys, said, strict=True)}
        for node_id, *said in rows
        if None not in said
    }


def build(cluster_id: UUID, now: datetime) -> engine.Snapshot:
    """Read the whole cluster anew."""
    return SnapshotCache().refresh(cluster_id, now)


OF_CLUSTER = "t.queue_id IN (SELECT id FROM scheduling_queue WHERE cluster_id = %s)"
WRITTEN = f"{OF_CLUSTER} AND t.changed_xid >= %s"
OF_INTEREST = f"""{OF_CLUSTER} AND (
    t.phase IN ({", ".join(f"'{phase}'" for phase in sorted(SCHEDULABLE_PHASES))})
    OR t.tasks_starting > 0 OR t.tasks_running > 0 OR t.tasks_stopping > 0
)"""


def is_of_interest(job: Job) -> bool:
    """Whether a job wants a place or still holds one."""
    live = job.tasks_starting + job.tasks_running + job.tasks_stopping
    is_set_aside = job.quarantine_strikes >= STRIKES
    return (job.phase in SCHEDULABLE_PHASES and not is_set_aside) or live > 0


def _reservations(cluster_id: UUID, now: datetime) -> tuple[engine.Reservation, ...]:
    rows = Reservation.objects.filter(
        job__queue__cluster_id=cluster_id, expires_at__gt=now
    ).order_by("job_id")
    return tuple(
        engine.Reservation(
            job=str(row.job_id),
            amounts_by_node=row.amounts_by_node,
            places=row.places,
            expires_at=row.expires_at.timestamp(),
            reason=row.reason,
            starts_at=None if row.starts_at is None else row.starts_at.timestamp(),
        )
        for row in rows
    )


def _merge(kept: dict[UUID, Any], fresh: Mapping[UUID, Any], gone: Collection[UUID]) -> bool:
    """Put fresh values in and take gone ones out; an equal value leaves the old object."""
    is_changed = False
    for key in gone:
        is_changed |= kept.pop(key, None) is not None
    for key, value in fresh.items():
        if kept.get(key) != value:
            kept[key] = value
            is_changed = True
    return is_changed


def _require_complete(
    jobs: Iterable[engine.Job], queues: Iterable[engine.Queue], nodes: Iterable[engine.Node]
) -> None:
    queue_names = {queue.name for queue in queues}
    node_names = {node.name for node in nodes}
    for queue in queues:
        if queue.parent is not None and queue.parent not in queue_names:
            raise IncompleteSnapshotError(f"queue {queue.name}: no parent {queue.parent}")
    for job in jobs:
        if job.queue not in queue_names:
            raise IncompleteSnapshotError(f"job {job.name}: no queue {job.queue}")
        for task in job.tasks:
            if task.node is not None and task.node not in node_names:
                raise IncompleteSnapshotError(f"job {job.name}: task on unknown {task.node}")
