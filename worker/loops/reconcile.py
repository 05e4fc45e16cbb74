"""The loop that finds what nobody reports: silent nodes, due timers, time limits, expiries."""

from __future__ import annotations

import structlog

from scheduling.domain import delayed_actions, leases, logs, nodes, retention, time_limits
from scheduling.domain.clock import database_now
from worker.loops.base import HeldLease
from worker.loops.stopping import STOPPING

log = structlog.get_logger(__name__)

SCOPE = "reconcile"
AT_ONCE = 100
"""So many of each kind are done in one turn; the others come with the next."""

LOGS_AT_ONCE = 5


class ReconcileLoop:
    """Looks once a second; each thing it finds is one fenced transaction."""

    scope = SCOPE

    def begin(self, lease: HeldLease) -> None:
        """Need nothing: the rows say everything."""

    def end(self) -> None:
        """Have nothing to close."""

    def wait(self, seconds: float) -> None:
        """Wait out the second, unless the worker ends."""
        STOPPING.wait(seconds)

    def turn(self, lease: HeldLease) -> None:
        """Do all that is due."""
        now = database_now()
        for node_id in nodes.lapsed(now):
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
        for attempt_id in logs.to_fold(now, limit=LOGS_AT_ONCE):
            lease.require_safe()
            logs.fold(attempt_id)
        leases.describe(scope=lease.scope, epoch=lease.epoch, detail={"at": now.isoformat()})
