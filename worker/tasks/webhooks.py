"""Deliver one batch of events to one webhook, as a short task: a slow receiver holds nobody up."""

from __future__ import annotations

from scheduling.domain.clock import database_now
from tenants.domain import webhooks
from tenants.models import OutboxRow, Webhook
from worker import webhook_post
from worker.app import app
from worker.loops.relay import DELIVER


@app.task(name=DELIVER)
def deliver_webhook(row_id: int) -> None:
    """Post what an outbox row holds, and note how that went. Told twice, a receiver knows by id."""
    row = OutboxRow.objects.filter(id=row_id, topic=webhooks.TOPIC, is_dead=False).first()
    webhook = Webhook.objects.filter(id=row.key).first() if row is not None else None
    if row is None or webhook is None:
        return
    try:
        webhook_post.post(webhook, row)
    except webhook_post.NotTakenError as error:
        webhooks.not_delivered(row, str(error), database_now())
    else:
        webhooks.delivered(row, database_now())
