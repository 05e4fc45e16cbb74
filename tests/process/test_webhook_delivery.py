"""A webhook on real processes: relay, Celery task, HTTP; refused once, delivered with the retry."""

from __future__ import annotations

import json

import pytest
from pytest_django import Settings

from scheduling.domain import clock, events
from tenants.domain import webhooks
from tenants.domain.webhooks import NewWebhook
from tenants.models import OutboxRow, Webhook
from tests.process.fake_gateway import wait_for
from tests.process.gateway_process import Installed
from tests.process.loop_processes import Loops
from tests.webhook_receiver import Receiver, is_signed

pytestmark = pytest.mark.django_db(transaction=True)
PATIENCE_SECONDS = 120
THIS_MACHINE = "127.0.0.0/8"


def test_refused_delivery_comes_again_signed_with_the_same_id(settings: Settings) -> None:
    """A receiver that failed once is told the same again; afterwards nothing is left to tell."""
    settings.TERRACE_WEBHOOK_ALLOWED = [THIS_MACHINE]  # of this process, where it is made
    installed = Installed()
    with (
        Receiver(500) as receiver,
        Loops(workers=1, TERRACE_WEBHOOK_ALLOWED=THIS_MACHINE) as loops,
    ):
        hook, secret = webhooks.create_webhook(
            actor=installed.actor,
            unit_id=installed.installation.tenant.id,
            new=NewWebhook("ci", receiver.url, ["job"]),
            cursor=str(events.newest()),
            now=clock.database_now(),
        )
        job = installed.submit("told", ["true"])
        told = Webhook.objects.filter(id=hook.id, last_error="", last_delivered_at__isnull=False)
        try:
            wait_for(told.exists, PATIENCE_SECONDS)
        except AssertionError as error:
            raise AssertionError(loops.logs()) from error

    first, again = receiver.taken[:2]
    assert first[1] == again[1]
    assert first[0]["Terrace-Delivery"] == again[0]["Terrace-Delivery"]
    assert all(is_signed(*one, secret) for one in receiver.taken)
    assert not is_signed(first[0], first[1] + b" ", secret)
    assert {one["job"]["id"] for one in json.loads(again[1])["events"]} == {str(job.id)}
    assert not OutboxRow.objects.filter(topic=webhooks.TOPIC).exists()
