"""The loops as Celery tasks: started by beat when missing, queued again by one that hands over."""

from uuid import UUID

from worker.app import LOOPS_QUEUE, app
from worker.loops.base import Loop, Outcome, run
from worker.loops.reconcile import ReconcileLoop
from worker.loops.relay import RelayLoop
from worker.loops.scheduler import SchedulerLoop


@app.task(
    name="worker.loops.schedule", queue=LOOPS_QUEUE, acks_late=False, reject_on_worker_lost=False
)
def schedule(cluster_id: str) -> None:
    """Run the scheduler loop of a cluster."""
    if _run(SchedulerLoop(UUID(cluster_id))):
        schedule.apply_async(args=(cluster_id,))


@app.task(
    name="worker.loops.relay", queue=LOOPS_QUEUE, acks_late=False, reject_on_worker_lost=False
)
def relay() -> None:
    """Run the outbox relay."""
    if _run(RelayLoop()):
        relay.apply_async()


@app.task(
    name="worker.loops.reconcile", queue=LOOPS_QUEUE, acks_late=False, reject_on_worker_lost=False
)
def reconcile() -> None:
    """Run the loop that finds what nobody reports."""
    if _run(ReconcileLoop()):
        reconcile.apply_async()


def _run(loop: Loop) -> bool:
    return run(loop) is Outcome.HANDED_OVER
