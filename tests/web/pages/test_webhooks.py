"""The pages of webhooks: made, switched, shown with what did not arrive, hidden from others."""

from __future__ import annotations

import re
from collections.abc import Callable

from django.test import Client

from tenants.domain import webhooks
from tenants.models import OutboxRow, User, Webhook
from tests.web.pages.conftest import Site

Browse = Callable[[User], Client]


def make(client: Client, site: Site, **fields: object) -> str:
    reply = client.post(
        "/admin/webhooks/new/",
        {
            "unit": str(site.people.vision.id),
            "name": "ci",
            "url": "https://hooks.example.com/terrace",
            "subjects": ["job", "task"],
            **fields,
        },
    )
    return reply.content.decode()


def test_administrator_makes_a_webhook_and_sees_its_secret_once(site: Site, browse: Browse) -> None:
    """The secret stands on the page that follows, and on no later one."""
    alice = browse(site.people.alice)

    made = make(alice, site)
    hook = Webhook.objects.get()
    later = alice.get(f"/admin/webhooks/{hook.id}/").content.decode()
    listed = alice.get("/admin/webhooks/").content.decode()

    (secret,) = re.findall(r"trh_[0-9a-f]{64}", made)
    assert secret == webhooks.secret_of(hook)
    assert (hook.subjects, hook.unit) == (["job", "task"], site.people.vision)
    assert "trh_" not in later + listed
    assert "hooks.example.com" in listed


def test_wrong_address_is_said_at_its_field(site: Site, browse: Browse) -> None:
    """What was typed stays, and the page says why it was refused."""
    page = make(browse(site.people.alice), site, url="http://127.0.0.1/hook")

    assert "TERRACE_WEBHOOK_ALLOWED" in page
    assert 'value="http://127.0.0.1/hook"' in page
    assert not Webhook.objects.exists()


def test_webhook_is_switched_renewed_retried_and_removed(site: Site, browse: Browse) -> None:
    """Each button does what it says; one that comes late changes nothing."""
    alice = browse(site.people.alice)
    make(alice, site)
    hook = Webhook.objects.get()
    row = OutboxRow.objects.create(
        topic=webhooks.TOPIC,
        key=str(hook.id),
        payload={"events": [{"job": {"name": "lost-one"}}]},
        created_at=site.now,
        not_before=site.now,
        is_dead=True,
        last_error="the receiver answered with status 500",
    )
    act = f"/admin/webhooks/{hook.id}/act/"

    shown = alice.get(f"/admin/webhooks/{hook.id}/").content.decode()
    alice.post(act, {"action": "off", "version": "1"})
    alice.post(act, {"action": "on", "version": "1"})
    hook.refresh_from_db()
    renewed = alice.post(act, {"action": "secret", "version": "2"}).content.decode()
    alice.post(act, {"action": "retry"})
    row.refresh_from_db()
    alice.post(act, {"action": "remove", "version": "3"})

    assert "lost-one" in shown
    assert "status 500" in shown
    assert not hook.is_active
    assert "trh_" in renewed
    assert not row.is_dead
    assert not Webhook.objects.exists()


def test_webhooks_are_nothing_to_others(site: Site, browse: Browse) -> None:
    """A researcher sees none and makes none; another tenant finds nothing by the address."""
    make(browse(site.people.alice), site)
    hook = Webhook.objects.get()
    bob, charlie = browse(site.people.bob), browse(site.people.charlie)

    assert "hooks.example.com" not in bob.get("/admin/webhooks/").content.decode()
    assert bob.get("/admin/webhooks/new/").status_code == 403
    assert charlie.get(f"/admin/webhooks/{hook.id}/").status_code == 404
    assert charlie.post(f"/admin/webhooks/{hook.id}/act/", {"action": "off"}).status_code == 404
