"""When a finished job may be removed: its own delay, or the installation's delay by result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from scheduling.lifecycle.states import FINISHED_PHASES, JobPhase

DAY_SECONDS = 86_400
KEEP_SECONDS_BY_PHASE: Mapping[JobPhase, int | None] = {
    JobPhase.COMPLETED: 30 * DAY_SECONDS,
    JobPhase.TERMINATED: 30 * DAY_SECONDS,
    JobPhase.FAILED: 90 * DAY_SECONDS,
}
"""How long a finished job without a delay of its own is kept; failures are looked at longer."""


@dataclass(frozen=True, slots=True)
class CleanUp:
    """Whether a job is to be removed now, and if not, when to look again (None: never)."""

    is_due: bool
    look_again_at: datetime | None = None


def expires_at(
    *,
    phase: JobPhase,
    finished_at: datetime | None,
    ttl_seconds: int | None,
    keep_seconds: Mapping[JobPhase, int | None] = KEEP_SECONDS_BY_PHASE,
) -> datetime | None:
    """Return when a job is to be removed, None if it is kept. Aborted is parked: never."""
    if phase not in FINISHED_PHASES or finished_at is None:
        return None
    seconds = keep_seconds.get(phase) if ttl_seconds is None else ttl_seconds
    return None if seconds is None else finished_at + timedelta(seconds=seconds)


def check(
    *,
    phase: JobPhase,
    finished_at: datetime | None,
    ttl_seconds: int | None,
    now: datetime,
    is_being_removed: bool = False,
    keep_seconds: Mapping[JobPhase, int | None] = KEEP_SECONDS_BY_PHASE,
) -> CleanUp:
    """Decide about one job at one instant."""
    at = expires_at(
        phase=phase,
        finished_at=finished_at,
        ttl_seconds=ttl_seconds,
        keep_seconds=keep_seconds,
    )
    if at is None or is_being_removed:
        return CleanUp(is_due=False)
    return CleanUp(is_due=True) if at <= now else CleanUp(is_due=False, look_again_at=at)
