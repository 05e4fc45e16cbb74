"""What could be changed so that a waiting job starts now, as far as the reader may know of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from scheduling.domain.cycles import configuration_of
from scheduling.domain.queries.explain import WARM
from scheduling.domain.queries.redaction import redacted
from scheduling.engine.changes import Change, smallest_changes
from scheduling.lifecycle.states import SCHEDULABLE_PHASES
from scheduling.models import Job, Queue
from tenants.domain import access
from tenants.domain.access import Actor, Verb

MOST = 3
"""Changes that are shown, one of a kind."""


def changes_for(actor: Actor, job: Job, *, now: datetime) -> tuple[Change, ...]:
    """Return changes each of which alone would start the job, the smallest first.

    Only queues are proposed to which the actor may submit; jobs to wait for are named to those
    who see them, the others only counted.

    Raises:
        NotFound: the actor does not see the job.
    """
    access.require(actor, Verb.JOB_READ, job.unit_id, owner_id=job.owner_id, what="job")
    if job.phase not in SCHEDULABLE_PHASES:
        return ()
    cluster_id = job.queue.cluster_id
    own = Queue.objects.visible_to(access.reads(actor, Verb.JOB_CREATE))
    queues = set(own.filter(cluster_id=cluster_id).values_list("name", flat=True))
    cache, memo, lock = WARM.of(cluster_id)
    with lock:
        snapshot = cache.refresh(cluster_id, now)
        try:
            found = smallest_changes(
                snapshot,
                configuration_of(cluster_id),
                str(job.id),
                memo=memo,
                queues=queues,
                most=MOST,
            )
        except KeyError:
            return ()
    scope = access.reads(actor, Verb.JOB_READ)
    shown = redacted(scope, [c.params for c in found], own_queues=queues)
    return tuple(replace(c, params=params) for c, params in zip(found, shown, strict=True))


def code_of(change: Change) -> str:
    """Return the code under which `wording` has the sentence of a change."""
    constraint = change.params.get("constraint")
    return f"change_{change.kind}_{constraint}" if constraint else f"change_{change.kind}"
