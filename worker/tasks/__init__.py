"""Short Celery tasks: thin, safe to run twice, each calls one domain function."""

from __future__ import annotations

from typing import Any

from celery import Task

from scheduling.domain import forecasts, leases, retention
from scheduling.domain.clock import database_now
from scheduling.domain.launches import scheduler_scope
from scheduling.models import Cluster
from worker.app import LOOPS_QUEUE, app
from worker.loops.base import ALONE_KEY, STANDBY_PREFIX, broker
from worker.loops.reconcile import SCOPE as RECONCILE
from worker.loops.relay import SCOPE as RELAY
from worker.tasks.loops import reconcile, relay, schedule

STANDBYS_QUEUED = 2
"""Two at once, since one alone may come to the holder's own worker each time, for minutes.

Redis gives a message to the worker that has waited longest. A worker waits a second at a time, and
beat ticks each second as well: who has just taken a message is back in line right after the tick,
and the other one gets behind it when its second is over, before the next tick. Of two messages
sent together the second one goes to the other worker. Whoever is not needed ends at once.
"""


@app.task(name="worker.tasks.start_missing_loops")
def start_missing_loops() -> None:
    """Queue each loop whose lease nobody holds; once all run, some to stand by for each.

    Nothing is added to what nobody has taken yet: a worker that comes back begins with what waits,
    and need not first throw away what was queued each second while it was away. Nobody is sent to
    stand by while the only worker has said that it is alone.
    """
    with broker() as client:
        if client.llen(LOOPS_QUEUE):
            return
        is_alone = bool(client.exists(ALONE_KEY))
    loops: list[tuple[str, Task[Any, Any], tuple[str, ...]]] = [
        (RELAY, relay, ()),
        (RECONCILE, reconcile, ()),
        *(
            (scheduler_scope(cluster_id), schedule, (str(cluster_id),))
            for cluster_id in Cluster.objects.order_by("created_at").values_list("id", flat=True)
        ),
    ]
    missing = [(task, args) for scope, task, args in loops if not leases.is_held(scope)]
    if not missing and not is_alone:
        missing = [
            (task, args)
            for scope, task, args in loops
            if not leases.is_held(STANDBY_PREFIX + scope)
            for _ in range(STANDBYS_QUEUED)
        ]
    for task, args in missing:
        task.apply_async(args=args)


@app.task(name="worker.tasks.foretell_starts")
def foretell_starts() -> None:
    """Say anew when the waiting jobs of each cluster will start."""
    for cluster_id in Cluster.objects.order_by("created_at").values_list("id", flat=True):
        forecasts.make(cluster_id=cluster_id, now=database_now())


@app.task(name="worker.tasks.thin_history")
def thin_history() -> None:
    """Make old measurements coarser and delete what is kept for a limited time."""
    retention.thin(now=database_now())
