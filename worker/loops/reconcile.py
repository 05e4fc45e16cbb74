"""The loop that finds what nobody reports: silent nodes, due timers and changes, expiries."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import structlog

from scheduling.domain import (
    change_sets,
    delayed_actions,
    leases,
    logs,
    nodes,
    retention,
    samples,
    time_limits,
)
from scheduling.domain.clock import database_now
from worker.loops.base import HeldLease
from worker.loops.stopping import STOPPING

log = structlog.get_logger(__name__)

SCOPE = "reconcile"
AT_ONCE = 100
"""So many of each kind are done in one turn; the others come with the next."""

LOGS_AT_ONCE = 5
THIN_EVERY = timedelta(hours=1)
"""How often old samples are made coarser."""


class ReconcileLoop:
    """Looks once a second; each thing it finds is one fenced transaction.

    It judges a node's silence only after it has itself watched for as long as a node may be silent.
    While the database was away nobody could be heard: the nodes were not silent, we were deaf, and
    what ended meanwhile is still to be reported.
    """

    scope = SCOPE

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Take the clock by which the loop knows for how long it has watched, in seconds."""
        self._monotonic = monotonic
        self._watches_since = monotonic()
        self._sampled_at = self._thinned_at = datetime.min.replace(tzinfo=UTC)

    def prepare(self) -> None:
        """Have nothing to read ahead."""

    def begin(self, lease: HeldLease) -> None:  # noqa: ARG002 - what every loop is given
        """Begin to watch: it leads for the first time, or again after it had lost the database."""
        self._watches_since = self._monotonic()

    def end(self) -> None:
        """Have nothing to close."""

    def wait(self, seconds: float) -> None:
        """Wait out the second, unless the worker ends."""
        STOPPING.wait(seconds)

    def turn(self, lease: HeldLease) -> None:
        """Do all that is due."""
        now = database_now()
        for node_id in nodes.lapsed(now) if self._has_watched() else ():
            lease.require_safe()
            with leases.fenced(scope=lease.scope, epoch=lease.epoch):
                lost = nodes.give_up(node_id=node_id, now=database_now())
            log.warning("node_given_up", node=str(node_id), attempts_lost=lost)
        for action_id in delayed_actions.due(now, limit=AT_ONCE):
            lease.require_safe()
            with leases.fenced(scope=lease.scope, epoch=lease.epoch):
                delayed_actions.perform(action_id=action_id, now=now)
        for job_id in time_limits.overdue(now, limit=AT_ONCE):
            lease.require_safe()
            with leases.fenced(scope=lease.scope, epoch=lease.epoch):
                time_limits.end_job(job_id=job_id, now=now)
        for job_id in retention.expired_jobs(now, limit=AT_ONCE):
            lease.require_safe()
            with leases.fenced(scope=lease.scope, epoch=lease.epoch):
                retention.clean_up(job_id=job_id)
        for change_set_id in change_sets.due(now, limit=AT_ONCE):
            lease.require_safe()
            with leases.fenced(scope=lease.scope, epoch=lease.epoch):
                change_sets.apply_due(change_set_id=change_set_id, now=database_now())
        for attempt_id in logs.to_fold(now, limit=LOGS_AT_ONCE):
            lease.require_safe()
            logs.fold(attempt_id)
        self._sample(lease, now)
        leases.describe(scope=lease.scope, epoch=lease.epoch, detail={"at": now.isoformat()})

    def _sample(self, lease: HeldLease, now: datetime) -> None:
        """Take samples for the pages every half minute, and thin old ones every hour."""
        if now - self._sampled_at < samples.EVERY:
            return
        self._sampled_at = now
        lease.require_safe()
        with leases.fenced(scope=lease.scope, epoch=lease.epoch):
            samples.take(now=now)
        if now - self._thinned_at >= THIN_EVERY:
            self._thinned_at = now
            with leases.fenced(scope=lease.scope, epoch=lease.epoch):
                samples.thin(now=now)

    def _has_watched(self) -> bool:
        watched = self._monotonic() - self._watches_since
        return watched >= nodes.silence_limit().total_seconds()
