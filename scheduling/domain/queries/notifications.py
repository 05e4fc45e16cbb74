"""What happened to a person's own jobs and is worth telling: read from the record, not stored."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from scheduling.domain.queries.redaction import redact_rows
from scheduling.models import Attempt, Job
from scheduling.models.attempt import AttemptState
from scheduling.models.job import JobPhase
from tenants.domain.access import Actor
from tenants.models import NotificationChoice

REACHES_BACK = timedelta(days=14)
"""What happened before is looked up in the list."""
MOST = 50
WORTH_TELLING = {
    "wants_ended": (JobPhase.COMPLETED,),
    "wants_failed": (JobPhase.FAILED,),
}
"""Choice -> phases in which a job ended; what its owner cancelled is no news."""


@dataclass(frozen=True, slots=True)
class Notification:
    """One thing that happened to a job: it ended (`state` is its phase), or lost a task's place."""

    job: Job
    at: datetime
    state: str
    role: str = ""
    index: int = 0
    is_unread: bool = False


def notifications(
    actor: Actor, choice: NotificationChoice, *, now: datetime, most: int = MOST
) -> list[Notification]:
    """Return what happened lately to the actor's own jobs, the newest first: two queries."""
    since = now - REACHES_BACK
    found = _ended(actor, choice, since, most) + _preempted(actor, choice, since, most)
    found.sort(key=lambda one: (one.at, str(one.job.id), one.role, one.index), reverse=True)
    return found[:most]


def _ended(
    actor: Actor, choice: NotificationChoice, since: datetime, most: int
) -> list[Notification]:
    phases = [
        phase for name, told in WORTH_TELLING.items() if getattr(choice, name) for phase in told
    ]
    if not phases:
        return []
    rows = list(
        Job.objects.visible_to(actor)
        .filter(
            owner_id=actor.user_id,
            phase__in=phases,
            finished_at__gte=since,
        )
        .select_related("queue")
        .defer("spec")
        .order_by("-finished_at", "-id")[:most]
    )
    redact_rows(actor, rows, own_queues={job.queue.name for job in rows})
    return [
        Notification(job, job.finished_at, job.phase, is_unread=_is_unread(choice, job.finished_at))
        for job in rows
        if job.finished_at is not None
    ]


def _preempted(
    actor: Actor, choice: NotificationChoice, since: datetime, most: int
) -> list[Notification]:
    if not choice.wants_preempted:
        return []
    rows = (
        Attempt.objects.filter(
            state=AttemptState.EVICTED,
            evicted_owner=actor.user_id,
            finished_at__gte=since,
            job__in=Job.objects.visible_to(actor),
        )
        .select_related("job__queue", "task__role")
        .defer("job__spec")
        .order_by("-finished_at", "-id")[:most]
    )
    return [
        Notification(
            row.job,
            row.finished_at,
            "Evicted",
            row.task.role.name,
            row.task.index,
            _is_unread(choice, row.finished_at),
        )
        for row in rows
        if row.finished_at is not None
    ]


def _is_unread(choice: NotificationChoice, at: datetime) -> bool:
    return choice.read_at is None or at > choice.read_at
