"""A day as it was: the jobs that ended, in the form that the simulator replays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from django.db.models import F

from scheduling.models import Job

CHUNK = 2000


@dataclass(frozen=True, slots=True)
class RecordedJob:
    """One job of a recorded day; times in seconds, `request` of each task in the engine's units."""

    job: str
    queue: str
    owner: str
    submitted_at: float
    seconds: float
    tasks: int
    request: dict[str, int]
    priority: int


def recorded_jobs(*, since: datetime, until: datetime) -> Iterator[RecordedJob]:
    """Yield the jobs that were submitted in the span, started and have ended, the oldest first.

    A job of several roles becomes one role with as many tasks, each with the mean of their
    requests: what it held in all is kept, which role held it is not.
    """
    jobs = Job.objects.filter(
        created_at__gte=since,
        created_at__lt=until,
        started_at__isnull=False,
        finished_at__gt=F("started_at"),
    ).order_by("created_at", "id")
    found = jobs.select_related("queue", "owner").prefetch_related("roles")
    for job in found.iterator(chunk_size=CHUNK):
        roles = list(job.roles.all())
        tasks = sum(role.replicas for role in roles)
        if not tasks or job.started_at is None or job.finished_at is None:
            continue
        total: dict[str, int] = {}
        for role in roles:
            for resource, amount in role.request.items():
                total[resource] = total.get(resource, 0) + amount * role.replicas
        yield RecordedJob(
            job=str(job.id),
            queue=job.queue.name,
            owner=job.owner.username,
            submitted_at=job.created_at.timestamp(),
            seconds=(job.finished_at - job.started_at).total_seconds(),
            tasks=tasks,
            request={resource: -(-amount // tasks) for resource, amount in total.items()},
            priority=job.priority,
        )
