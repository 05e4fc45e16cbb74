"""What a plan says besides its binds: phases of gangs, reasons, reservations and shares.

A cycle says the same of thousands of jobs again and again. `Told` remembers what was written, so
that an idle cycle touches no row.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.db import connection

from scheduling.domain import topics
from scheduling.domain.bulk_rows import update_rows
from scheduling.engine import types as engine
from scheduling.lifecycle.states import (
    SCHEDULABLE_PHASES,
    TaskState,
)
from scheduling.models import (
    Queue,
    QueueShare,
    Reservation,
    Task,
)
from tenants.domain import outbox

REASONS_AT_MOST = 2000
"""How many jobs get a new reason in one cycle; the others are told in the next ones."""
SHARES_EVERY_SECONDS = 0.5
"""How often shares that change with every cycle are written; an idle cycle writes the last."""
REASON_REFRESH_SECONDS = 5.0
"""How often the numbers of an unchanged reason are written anew."""


@dataclass(slots=True)
class Told:
    """What a holder has written of reasons and shares, so that an idle cycle touches no row.

    A job's reason counts as told while the job's row has the same version: whoever changes the
    job's state takes its reason away.
    """

    versions: Mapping[str, int] = field(default_factory=dict)
    """Job key -> version of its row, as the snapshot cache keeps it."""
    reasons: dict[str, tuple[int, engine.Reason, datetime]] = field(default_factory=dict)
    shares: tuple[engine.QueueShare, ...] = ()
    shares_at: datetime | None = None

    def is_time_for(self, shares: tuple[engine.QueueShare, ...], now: datetime) -> bool:
        """Whether shares are to be written: they are new, and the last ones stood for a while."""
        if shares == self.shares:
            return False
        at = self.shares_at
        return at is None or (now - at).total_seconds() >= SHARES_EVERY_SECONDS

    def news(self, plan: engine.Plan, now: datetime) -> dict[str, engine.Reason]:
        """Return the reasons that are new, at most `REASONS_AT_MOST`, and count them as told."""
        fresh: dict[str, engine.Reason] = {}
        versions, reasons = self.versions, self.reasons
        # Thousands of jobs share a few reasons, the plan's and those told: each pair is compared
        # once, which makes an idle cycle half as long.
        alike: dict[tuple[int, int], bool] = {}
        for key, reason in plan.job_reasons.items():
            version = versions.get(key, 0)
            known = reasons.get(key)
            if known is not None and known[0] == version:
                pair = (id(known[1]), id(reason))
                is_alike = alike.get(pair)
                if is_alike is None:
                    is_alike = alike[pair] = known[1] == reason
                if is_alike or _is_too_soon(known[1], known[2], reason, now):
                    continue
            reasons[key] = (version, reason, now)
            fresh[key] = reason
            if len(fresh) >= REASONS_AT_MOST:
                break
        if len(reasons) > len(plan.job_reasons):
            for key in reasons.keys() - plan.job_reasons.keys():
                del reasons[key]
        return fresh


def _is_too_soon(told: engine.Reason, at: datetime, reason: engine.Reason, now: datetime) -> bool:
    """Whether only the numbers of a reason are others, and the old ones are young."""
    return told.code == reason.code and (now - at).total_seconds() < REASON_REFRESH_SECONDS


LOCK_JOBS = """
SELECT j.id FROM scheduling_job AS j
JOIN scheduling_queue AS q ON q.id = j.queue_id AND q.cluster_id = %(cluster)s
WHERE j.id = ANY(%(ids)s) AND j.phase = ANY(%(phases)s)
ORDER BY j.id FOR NO KEY UPDATE OF j
"""
WRITE_JOBS = """
WITH said AS (
    SELECT * FROM unnest(
        %(ids)s::uuid[], %(gang_phases)s::text[], %(codes)s::text[], %(params)s::jsonb[]
    ) AS said(id, gang_phase, code, params)
), another AS (
    INSERT INTO scheduling_pastreason (job_id, minute, at, code, params)
    SELECT j.id, date_trunc('minute', %(now)s::timestamptz), %(now)s, said.code, said.params
    FROM said JOIN scheduling_job AS j ON j.id = said.id AND j.id = ANY(%(locked)s::uuid[])
    WHERE said.code <> j.reason_code
    ON CONFLICT (job_id, minute) DO UPDATE
        SET at = excluded.at, code = excluded.code, params = excluded.params
)
UPDATE scheduling_job AS j SET
    gang_phase = coalesce(said.gang_phase, j.gang_phase),
    admitted_at = CASE WHEN said.gang_phase = 'Inqueue' THEN %(now)s ELSE j.admitted_at END,
    reason_code = coalesce(said.code, j.reason_code),
    reason_params = coalesce(said.params, j.reason_params),
    reason_at = CASE WHEN said.code IS NULL THEN j.reason_at ELSE %(now)s END
FROM said
WHERE j.id = said.id AND j.id = ANY(%(locked)s::uuid[]) AND (
    said.gang_phase IS DISTINCT FROM j.gang_phase AND said.gang_phase IS NOT NULL
    OR said.gang_phase = 'Inqueue'
    OR said.code IS NOT NULL
    AND (said.code, said.params) IS DISTINCT FROM (j.reason_code::text, j.reason_params)
)
RETURNING j.id
"""
"""A reason with another code is also noted in the job's past; new numbers alone are not."""


def write_jobs(
    keys: Sequence[str],
    phases: Mapping[str, engine.GangPhase],
    reasons: Mapping[str, engine.Reason],
    *,
    cluster_id: UUID,
    now: datetime,
) -> None:
    """Write phases of gangs and reasons; a row that says so already is left alone."""
    ids = [UUID(key) for key in keys]
    schedulable = [str(phase) for phase in SCHEDULABLE_PHASES]
    said = [reasons.get(key) for key in keys]
    with connection.cursor() as cursor:
        cursor.execute(LOCK_JOBS, {"cluster": cluster_id, "ids": ids, "phases": schedulable})
        cursor.execute(
            WRITE_JOBS,
            {
                "ids": ids,
                "gang_phases": [str(phases[key]) if key in phases else None for key in keys],
                "codes": [None if one is None else str(one.code) for one in said],
                "params": [None if one is None else json.dumps(_json(one.params)) for one in said],
                "locked": [job_id for (job_id,) in cursor.fetchall()],
                "now": now,
            },
        )
        changed = sorted(job_id for (job_id,) in cursor.fetchall())
    message = topics.message([topics.Hint(topics.job(job_id), "state") for job_id in changed])
    if message is not None:
        outbox.publish_many([message], now=now)


def write_task_reasons(plan: engine.Plan) -> None:
    """Write why single tasks wait; a row that says so already is left alone."""
    if not plan.task_reasons:
        return
    rows = Task.objects.filter(
        id__in=[int(key) for key in plan.task_reasons], state=TaskState.PENDING
    )
    changed = []
    for task in rows.select_for_update(no_key=True).order_by("id"):
        reason = plan.task_reasons[str(task.id)]
        params = _json(reason.params)
        if (task.reason_code, task.reason_params) != (reason.code, params):
            task.reason_code, task.reason_params = reason.code, params
            changed.append(task)
    update_rows(changed, ("reason_code", "reason_params"))


def write_reservations(plan: engine.Plan, snapshot: engine.Snapshot, now: datetime) -> None:
    """Write what is kept free for whom, and take back what is not any more."""
    if plan.reservations == snapshot.reservations:
        return
    kept = {UUID(one.job): one for one in plan.reservations}
    given_up = {UUID(one.job) for one in snapshot.reservations} - kept.keys()
    Reservation.objects.filter(job_id__in=given_up).delete()
    Reservation.objects.bulk_create(
        (
            Reservation(
                job_id=job_id,
                amounts_by_node=_json(one.amounts_by_node),
                places=dict(one.places),
                reason=one.reason,
                created_at=now,
                expires_at=datetime.fromtimestamp(one.expires_at, tz=UTC),
                starts_at=None
                if one.starts_at is None
                else datetime.fromtimestamp(one.starts_at, tz=UTC),
            )
            for job_id, one in kept.items()
        ),
        update_conflicts=True,
        unique_fields=["job"],
        update_fields=["amounts_by_node", "places", "reason", "expires_at", "starts_at"],
    )


def write_shares(plan: engine.Plan, cluster_id: UUID, now: datetime) -> None:
    """Write what each queue deserves, holds and wants, where it is another than before."""
    ids = dict(Queue.objects.filter(cluster_id=cluster_id).values_list("name", "id"))
    known = {
        row.queue_id: (row.deserved, row.allocated, row.requested)
        for row in QueueShare.objects.filter(queue__cluster_id=cluster_id)
    }
    changed = []
    for share in plan.shares:
        values = (_json(share.deserved), _json(share.allocated), _json(share.requested))
        queue_id = ids.get(share.queue)
        if queue_id is not None and known.get(queue_id) != values:
            deserved, allocated, requested = values
            changed.append(
                QueueShare(
                    queue_id=queue_id,
                    deserved=deserved,
                    allocated=allocated,
                    requested=requested,
                    updated_at=now,
                )
            )
    if not changed:
        return
    QueueShare.objects.bulk_create(
        changed,
        update_conflicts=True,
        unique_fields=["queue"],
        update_fields=["deserved", "allocated", "requested", "updated_at"],
    )
    hints = [topics.Hint(topics.queue(share.queue_id), "state") for share in changed]
    message = topics.message([*hints, topics.Hint(topics.cluster(cluster_id), "state")])
    if message is not None:
        outbox.publish_many([message], now=now)


def _json(value: Any) -> Any:
    """Return a value as JSON gives it back, so that old and new compare equal."""
    if isinstance(value, Mapping):
        return {str(key): _json(one) for key, one in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_json(one) for one in value]
    if isinstance(value, float):
        return round(value, 3)
    if value is None or isinstance(value, (bool, int)):
        return value
    return str(value)
