"""Policies with a timeout: rows that wait for their time, done once, dropped when outlived."""

from datetime import datetime

from scheduling.domain.lifecycle_views import delayed_view
from scheduling.domain.transitions import Batch
from scheduling.lifecycle.values import ActionDue
from scheduling.models import DelayedAction


def due(now: datetime, *, limit: int) -> list[int]:
    """Return the actions whose time has come, the oldest first."""
    rows = DelayedAction.objects.filter(state="waiting", due_at__lte=now).order_by("due_at", "id")
    return list(rows.values_list("id", flat=True)[:limit])


def perform(*, action_id: int, now: datetime) -> bool:
    """Do one due action in the current transaction; False if it was outlived meanwhile.

    The job is locked first and the row read after: whoever drops an action holds that lock too.
    """
    job_id = DelayedAction.objects.filter(id=action_id).values_list("job_id", flat=True).first()
    batch = Batch(now=now, actor_label="policy")
    works = batch.lock([job_id]) if job_id is not None else []
    rows = [row for work in works for row in work.delayed if row.id == action_id]
    if not works or not rows:
        return False
    work, row = works[0], rows[0]
    action = delayed_view(row, work.view, work.roles)
    work.tell(ActionDue(action))
    row.state = "done"
    DelayedAction.objects.filter(id=row.id).update(state="done")
    batch.flush()
    return True
