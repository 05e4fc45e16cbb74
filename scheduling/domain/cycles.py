"""The configuration that a scheduler goes by, and the record of its cycles."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import connection
from django.db.models import Max

from scheduling.domain import leases, scheduler_configs
from scheduling.domain.wording import sentence
from scheduling.engine.config import DEFAULT_CONFIG, ConfigProblem, ParsedConfig, parse_config
from scheduling.engine.types import Config
from scheduling.models import Cluster, CycleRecord, SchedulerConfig

IDLE_RECORD_SECONDS = 5.0
KEPT_CYCLES = 10_000


@dataclass(frozen=True, slots=True)
class Cycle:
    """What one cycle did and how long its parts took."""

    started_at: datetime
    snapshot_ms: float
    plan_ms: float
    apply_ms: float
    binds: int
    evictions: int
    rejected: int
    pending: int
    error: str = ""

    @property
    def is_idle(self) -> bool:
        """Whether it changed nothing."""
        return not (self.binds or self.evictions or self.rejected or self.error)


def configuration_of(cluster_id: UUID) -> Config:
    """Return the configuration that a cluster's text names, the last good one where it is wrong."""
    text = Cluster.objects.values_list("scheduler_config", flat=True).get(id=cluster_id)
    return read_config(text).config or last_good(cluster_id)


def last_good(cluster_id: UUID) -> Config:
    """Return the newest version of a cluster's configuration that can be read, or the default."""
    rows = SchedulerConfig.objects.filter(cluster_id=cluster_id).order_by("-number")
    for text in rows.values_list("text", flat=True)[:MOST_VERSIONS]:
        config = read_config(text).config
        if config is not None:
            return config
    return DEFAULT_CONFIG


MOST_VERSIONS = 20


def read_config(text: str) -> ParsedConfig:
    """Parse a cluster's text; an empty one is the default."""
    return parse_config(text) if text.strip() else ParsedConfig(DEFAULT_CONFIG)


class Configuration:
    """The last valid configuration of a cluster; a wrong one is reported and never in force."""

    def __init__(self, cluster_id: UUID) -> None:
        """Read nothing yet."""
        self.cluster_id = cluster_id
        self._version = -1
        self._config = DEFAULT_CONFIG

    def current(self, scope: str, epoch: int) -> Config:
        """Return the configuration in force, read again when the cluster's row changed."""
        with connection.cursor() as cursor:
            statement = "SELECT version FROM scheduling_cluster WHERE id = %s"
            cursor.execute(statement, [self.cluster_id])
            if cursor.fetchone() == (self._version,):
                return self._config
        row = Cluster.objects.only("version", "scheduler_config", "config_problem").get(
            id=self.cluster_id
        )
        is_first, self._version = self._version < 0, row.version
        parsed = read_config(row.scheduler_config)
        if parsed.config is not None:
            self._config = parsed.config
        elif is_first:  # another process had a good one in force
            self._config = last_good(self.cluster_id)
        problem = _in_words(parsed.problems)[:LONGEST_PROBLEM]
        if problem != row.config_problem:
            with leases.fenced(scope=scope, epoch=epoch):
                Cluster.objects.filter(id=self.cluster_id).update(config_problem=problem)
        return self._config


LONGEST_PROBLEM = 1000


def _in_words(problems: Iterable[ConfigProblem]) -> str:
    """Say what is wrong where, in the installation's language."""
    return " ".join(
        f"{one.path.removeprefix('text').removeprefix('.')}: {sentence(one.code, one.params)}"
        for one in scheduler_configs.told(problems)
    )


WRITE_CYCLE = """
INSERT INTO scheduling_cyclerecord (
    cluster_id, number, epoch, started_at, snapshot_ms, plan_ms, apply_ms,
    binds, evictions, rejected, pending, error
) VALUES (
    %(cluster)s, %(number)s, %(epoch)s, %(started_at)s, %(snapshot_ms)s, %(plan_ms)s, %(apply_ms)s,
    %(binds)s, %(evictions)s, %(rejected)s, %(pending)s, %(error)s
)
ON CONFLICT (cluster_id, number) DO UPDATE SET
    epoch = excluded.epoch, started_at = excluded.started_at,
    snapshot_ms = excluded.snapshot_ms, plan_ms = excluded.plan_ms, apply_ms = excluded.apply_ms,
    binds = excluded.binds, evictions = excluded.evictions, rejected = excluded.rejected,
    pending = excluded.pending, error = excluded.error
"""


class CycleLog:
    """Writes cycles; those that changed nothing are folded into one row, every few seconds."""

    def __init__(self, cluster_id: UUID, scope: str, epoch: int) -> None:
        """Go on counting where the last holder stopped."""
        self.cluster_id, self.scope, self.epoch = cluster_id, scope, epoch
        last = CycleRecord.objects.filter(cluster_id=cluster_id).aggregate(n=Max("number"))["n"]
        self._number = int(last or 0)
        self._idle_since: datetime | None = None

    def add(self, cycle: Cycle) -> None:
        """Write a cycle, or fold it into the idle row."""
        is_fold = cycle.is_idle and self._idle_since is not None
        if is_fold and self._idle_since is not None:
            age = (cycle.started_at - self._idle_since).total_seconds()
            if age < IDLE_RECORD_SECONDS:
                return
        with leases.fenced(scope=self.scope, epoch=self.epoch):
            self._write(cycle, is_fold=is_fold)
            leases.describe(
                scope=self.scope,
                epoch=self.epoch,
                detail={
                    "cycle": self._number,
                    "at": cycle.started_at.isoformat(),
                    "pending": cycle.pending,
                    "plan_ms": round(cycle.plan_ms, 1),
                    "error": cycle.error,
                },
            )
        self._idle_since = cycle.started_at if cycle.is_idle else None

    def _write(self, cycle: Cycle, *, is_fold: bool) -> None:
        if not is_fold:
            self._number += 1
        with connection.cursor() as cursor:
            cursor.execute(
                WRITE_CYCLE,
                {
                    "cluster": self.cluster_id,
                    "number": self._number,
                    "epoch": self.epoch,
                    "started_at": cycle.started_at,
                    "snapshot_ms": cycle.snapshot_ms,
                    "plan_ms": cycle.plan_ms,
                    "apply_ms": cycle.apply_ms,
                    "binds": cycle.binds,
                    "evictions": cycle.evictions,
                    "rejected": cycle.rejected,
                    "pending": cycle.pending,
                    "error": cycle.error[:1000],
                },
            )
