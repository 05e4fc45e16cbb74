"""What somebody else has on the same cluster: one thing of each kind, each with a name to look for.

All names begin with one made-up word, so that a page which shows any of them can be found out
without knowing what the page is about; the ids of the rows are looked for as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.core.files.base import ContentFile
from django.core.files.storage import default_storage

from scheduling.domain import change_sets
from scheduling.domain.queue_changes import QueueEdit
from scheduling.models import (
    Attempt,
    History,
    ImageRule,
    Job,
    JobFile,
    JobTemplate,
    LogChunk,
    MetricSample,
    Node,
    Queue,
    QueueSample,
    QueueShare,
    Quota,
    QuotaLimit,
    Reservation,
    StartForecast,
    Task,
    Usage,
)
from tenants.domain import audit, tokens
from tenants.domain.access import SYSTEM, load_actor
from tenants.models import GrantRole, OrgUnit, SavedView, Secret, User, Webhook
from tests.factories.demo import GPU, make_job, make_queue, run_task
from tests.people import make_grant, make_unit, make_user


@dataclass(frozen=True, slots=True)
class Rival:
    """What was made, and by what it is found out."""

    word: str
    unit: OrgUnit
    queue: Queue
    owner: User
    job: Job
    ids: dict[str, str]
    """Kind -> id of a row that nobody else may be told."""

    def traces(self, text: str) -> list[str]:
        """Return what of it stands in a text."""
        found = [kind for kind, one in self.ids.items() if one in text]
        return [*([self.word] if self.word in text else []), *found]


def make_rival(
    word: str, above: OrgUnit | None, parent: Queue, node: Node, place: int, now: datetime
) -> Rival:
    """Write a unit with a queue, people and jobs in every state that pages tell of."""
    unit = make_unit(f"{word}-unit", above)
    owner = make_user(f"{word}-owner")
    for role in (GrantRole.RESEARCHER, GrantRole.ORG_ADMIN):
        make_grant(owner, role, unit)
    queue = make_queue(parent.cluster, unit, parent, f"{word}-queue", now, max={GPU: 7000})
    jobs = _jobs(word, queue, owner, node, place, now)
    _numbers(queue, now)
    ids = {
        "unit": unit.id,
        "queue": queue.id,
        "owner": owner.id,
        **{f"{name} job": job.id for name, job in jobs.items()},
        **_things(word, unit, queue, owner, jobs["running"], now),
    }
    return Rival(
        word, unit, queue, owner, jobs["running"], {name: str(one) for name, one in ids.items()}
    )


def _jobs(
    word: str, queue: Queue, owner: User, node: Node, place: int, now: datetime
) -> dict[str, Job]:
    """Write a job for everything that Operations, notifications, logs and forecasts tell of."""

    def made(name: str, phase: str = "Pending", **more: Any) -> Job:
        return make_job(queue, owner, f"{word}-{name}", now, phase=phase, replicas=1, **more)

    early = now - timedelta(minutes=30)
    jobs = {
        "running": made("running", "Running", started_at=early),
        "waiting": made("waiting", reason_code="nodes_unfit"),
        "aside": made("aside", reason_code="quarantined"),
        "unseen": made("unseen"),
        "stuck": made("stuck", "Terminating"),
        "failed": made("failed", "Failed", started_at=early, finished_at=now),
        "evicted": made("evicted", reason_code="evicted_for"),
    }
    late = {**jobs["waiting"].spec, "sla_waiting_seconds": 600.0}
    Job.objects.filter(id=jobs["waiting"].id).update(spec=late)
    Job.objects.filter(id__in=[jobs[name].id for name in ("unseen", "waiting")]).update(
        created_at=now - timedelta(minutes=20)
    )
    attempt = run_task(_task(jobs["running"]), node, queue, [node.devices.get(index=place)], now)
    Attempt.objects.filter(id=attempt.id).update(started_at=early)
    said = f"{word} says hello\n".encode()
    LogChunk.objects.create(
        attempt=attempt, stream="stdout", offset=0, size_bytes=len(said), data=said, at=now
    )
    MetricSample.objects.create(
        job=jobs["running"], attempt=attempt, line=1, at=now, values={f"{word}_loss": 1.0}
    )
    for minutes in (1, 14):  # so little that the GPU counts as idle
        Usage.objects.create(
            node=node, attempt=attempt, at=now - timedelta(minutes=minutes), gpu_percent=1.0
        )
    lost = run_task(_task(jobs["evicted"]), node, queue, [], now)
    Attempt.objects.filter(id=lost.id).update(
        state="Evicted", finished_at=now, evicted_for=jobs["running"]
    )
    for seq, name in enumerate(("running", "stuck", "failed", "evicted"), start=1):
        History.objects.create(
            job=jobs[name], seq=seq, subject="job", event="Started", to_state=jobs[name].phase,
            at=now - timedelta(minutes=10), actor_label=owner.username,
        )  # fmt: skip
    StartForecast.objects.create(job=jobs["waiting"], made_at=now, p50_at=now, p90_at=now)
    Reservation.objects.create(
        job=jobs["waiting"],
        amounts_by_node={node.name: dict(node.allocatable)},
        reason="sla",
        created_at=now,
        expires_at=now + timedelta(hours=1),
    )
    return jobs


def _task(job: Job) -> Task:
    return Task.objects.get(job=job, index=0)


def _numbers(queue: Queue, now: datetime) -> None:
    """Let the queue starve, and be drawn over time."""
    share = {"deserved": {GPU: 5000}, "allocated": {GPU: 1000}, "requested": {GPU: 9000}}
    QueueShare.objects.create(queue=queue, updated_at=now, **share)
    QueueSample.objects.create(queue=queue, at=now - timedelta(minutes=5), **share)


def _things(
    word: str, unit: OrgUnit, queue: Queue, owner: User, job: Job, now: datetime
) -> dict[str, object]:
    """Write what is no job: files, secrets, webhooks, tokens, quotas, rules, plans, the record."""
    file = JobFile.objects.create(
        unit=unit,
        owner=owner,
        job=job,
        attempt=job.attempts.get(),
        purpose="output",
        path=f"{word}.npz",
        size_bytes=1,
        sha256="0" * 64,
        storage_name=default_storage.save(f"walls/{word}.npz", ContentFile(b"x")),
        created_at=now,
    )
    secret = Secret.objects.create(
        unit=unit, name=f"{word}-secret", kind="variables", owner=owner, keys=[word.upper()],
        key_id="none", wrapped_key=b"", ciphertext=b"", created_at=now, changed_at=now,
    )  # fmt: skip
    webhook = Webhook.objects.create(
        unit=unit, name=f"{word}-hook", url=f"https://{word}.example/", subjects=["job"],
        cursor="0.0", created_at=now,
    )  # fmt: skip
    token, _text = tokens.create_token(
        actor=load_actor(owner), user=owner, name=f"{word}-token", verbs=(), unit=None,
        expires_at=now + timedelta(days=1), now=now,
    )  # fmt: skip
    quota = Quota.objects.create(unit=unit, scope="unit", created_at=now)
    QuotaLimit.objects.create(quota=quota, resource="running_jobs", amount=5)
    template = JobTemplate.objects.create(
        owner=owner, name=f"{word}-template", text="x: 1", created_at=now
    )
    SavedView.objects.create(
        user=owner, page="jobs", name=f"{word}-view", query="q=1", created_at=now
    )
    rule = ImageRule.objects.create(
        cluster=queue.cluster, unit=unit, position=900 + len(word), pattern=f"{word}/*",
        runtime="python",
    )  # fmt: skip
    plan = change_sets.create(
        actor=SYSTEM,
        cluster_id=queue.cluster_id,
        title=f"{word}-plan",
        now=now,
        edits=[QueueEdit(queue_id=queue.id, expected_version=queue.version, weight=9)],
    )
    audit.record(
        actor=load_actor(owner), action="queue.update", subject=queue, before={"weight": 1},
        after={"weight": 2}, unit=unit, now=now, reason=f"{word} wants more",
    )  # fmt: skip
    return {
        "file": file.id,
        "secret": secret.id,
        "webhook": webhook.id,
        "token": token.id,
        "quota": quota.id,
        "template": template.id,
        "plan": plan.id,
        "rule": rule.unit_id,
    }
