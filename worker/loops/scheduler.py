"""The scheduler loop of one cluster: snapshot, plan, verify, apply; woken by NOTIFY or each second.

A job that makes planning raise is found by halving, counted, and left out of the cycle; after
three strikes it stays out until somebody changes it. What the independent check refuses of a plan
is not applied: the decisions of the jobs at fault are left out, counted, and struck alike.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

import structlog

from scheduling.domain import apply_plan, cycles, leases, plan_words, quarantine, refused_plans
from scheduling.domain.clock import database_now
from scheduling.domain.launches import scheduler_scope
from scheduling.domain.refused_plans import Mended
from scheduling.domain.snapshot import SnapshotCache
from scheduling.engine import cycle
from scheduling.engine.garbage import without_collecting
from scheduling.engine.types import Plan, Snapshot
from tenants.domain import notify
from worker.loops.base import HeldLease

log = structlog.get_logger(__name__)

GATHER_AT_MOST_SECONDS = 0.05
"""After a wake-up, wait for its like for half as long as a cycle takes, and no longer than this:
where a cycle is dear, 20 submissions are one cycle and not 20; where it is cheap nobody waits."""
RETRY_SECONDS = 0.05
"""How soon a job whose part of a plan no longer held is planned anew."""


COLLECT_ALL_SECONDS = 600.0


class _Garbage:
    """Keeps Python's collector out of cycles: walking the warm snapshot takes longer than they do.

    What the first cycle read is taken out of the collector's sight; young garbage is looked for
    between cycles, while nobody waits, and the rest every ten minutes.
    """

    def __init__(self) -> None:
        self._is_frozen = False
        self._collected_at = time.monotonic()

    @contextmanager
    def kept_out(self) -> Iterator[None]:
        """Run a cycle without the collector."""
        with without_collecting():
            yield
            if not self._is_frozen:
                gc.freeze()
                self._is_frozen = True

    def collect(self) -> None:
        """Look for garbage, while there is nothing else to do."""
        is_time_for_all = time.monotonic() - self._collected_at > COLLECT_ALL_SECONDS
        gc.collect(2 if is_time_for_all else 1)
        if is_time_for_all:
            self._collected_at = time.monotonic()

    def end(self) -> None:
        """Give the collector everything back."""
        gc.unfreeze()
        self._is_frozen = False


class SchedulerLoop:
    """Plans for one cluster under its lease."""

    def __init__(self, cluster_id: UUID) -> None:
        """Read nothing yet."""
        self.cluster_id = cluster_id
        self.scope = scheduler_scope(cluster_id)
        self._listener: notify.Listener | None = None
        self._garbage = _Garbage()
        self._cache = SnapshotCache()
        self._forget()

    def _forget(self) -> None:
        self._memo = cycle.Memo()
        self._told = plan_words.Told(self._cache.versions)
        self._configuration = cycles.Configuration(self.cluster_id)
        self._log: cycles.CycleLog | None = None
        self._turn_seconds = 0.0
        self._is_rejected = False

    def prepare(self) -> None:
        """Read the cluster, or what of it changed: who then takes over plans at once."""
        self._cache.refresh(self.cluster_id, database_now())

    def begin(self, lease: HeldLease) -> None:
        """Forget what this holder has told; the first refresh reads what another one did."""
        self._forget()
        self._log = cycles.CycleLog(self.cluster_id, lease.scope, lease.epoch)
        self._listener = notify.Listener(notify.SCHEDULE)

    def end(self) -> None:
        """Stop listening, and give the memory back."""
        self._garbage.end()
        self._cache = SnapshotCache()
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def wait(self, seconds: float) -> None:
        """Wait for a change in this cluster, then gather what comes along with it."""
        if self._listener is None:
            return
        self._garbage.collect()
        until = time.monotonic() + (RETRY_SECONDS if self._is_rejected else seconds)
        while (left := until - time.monotonic()) > 0:
            if str(self.cluster_id) in self._listener.wait(left):
                time.sleep(min(self._turn_seconds / 2, GATHER_AT_MOST_SECONDS))
                return

    def turn(self, lease: HeldLease) -> None:
        """Run one cycle."""
        with self._garbage.kept_out():
            self._cycle(lease)

    def _cycle(self, lease: HeldLease) -> None:
        begun = time.perf_counter()
        now = database_now()
        snapshot = self._cache.refresh(self.cluster_id, now)
        if self._cache.unreadable:
            with leases.fenced(scope=lease.scope, epoch=lease.epoch):
                quarantine.strike_unreadable(self._cache.unreadable, now=now)
        read = time.perf_counter()
        mended, error = self._plan(snapshot, lease)
        plan = mended.plan
        planned = time.perf_counter()
        lease.require_safe()
        applied = apply_plan.apply(
            plan,
            cluster_id=self.cluster_id,
            scope=lease.scope,
            epoch=lease.epoch,
            snapshot=snapshot,
            now=now,
            told=self._told,
        )
        if self._log is not None:
            self._log.add(
                cycles.Cycle(
                    started_at=now,
                    snapshot_ms=(read - begun) * 1000,
                    plan_ms=(planned - read) * 1000,
                    apply_ms=(time.perf_counter() - planned) * 1000,
                    binds=applied.binds,
                    evictions=applied.evictions,
                    rejected=len(applied.rejected) + len(mended.left_out),
                    pending=len(plan.job_reasons),
                    error=error,
                )
            )
        self._turn_seconds = time.perf_counter() - begun
        self._is_rejected = bool(applied.rejected)
        for rejection in applied.rejected:
            log.info("job_rejected", job=rejection.job, what=rejection.what)

    def _plan(self, snapshot: Snapshot, lease: HeldLease) -> tuple[Mended, str]:
        """Return what may be applied of a plan, and what was wrong with the first try."""
        config = self._configuration.current(lease.scope, lease.epoch)
        sound = quarantine.plan(snapshot, config, memo=self._memo)
        if sound.poison is None:
            mended = self._checked(snapshot, sound.plan, lease)
            return mended, mended.summary
        self._memo = cycle.Memo()
        error = f"{type(sound.error).__name__}: {sound.error}"
        log.error(
            "planning_failed",
            cluster=str(self.cluster_id),
            job=sound.poison.key,
            exc_info=sound.error,
        )
        with leases.fenced(scope=lease.scope, epoch=lease.epoch):
            quarantine.strike(job_id=UUID(sound.poison.key), error=error, now=database_now())
        return self._checked(sound.snapshot, sound.plan, lease), error

    def _checked(self, snapshot: Snapshot, plan: Plan, lease: HeldLease) -> Mended:
        """Return what the independent check lets through; strike the jobs that are to blame."""
        if not (plan.binds or plan.evictions):
            return Mended(plan)
        config = self._configuration.current(lease.scope, lease.epoch)
        mended = refused_plans.mend(snapshot, plan, config)
        if not mended.refused:
            return mended
        log.error(
            "plan_refused",
            violations=[str(one) for one in mended.refused[:10]],
            left_out=mended.left_out[:10],
        )
        self._memo = cycle.Memo()  # what is remembered may be what is wrong
        if mended.guilty:
            now = database_now()
            with leases.fenced(scope=lease.scope, epoch=lease.epoch):
                for key, code in mended.guilty.items():
                    quarantine.strike(job_id=UUID(key), error=f"plan refused: {code}", now=now)
        return mended
