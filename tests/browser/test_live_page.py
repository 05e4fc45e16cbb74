"""A job page in a browser goes on following its job when nothing but its socket comes through."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from django.conf import settings
from django.test import Client
from playwright.sync_api import Browser, expect
from redis import Redis

from scheduling.domain import topics
from scheduling.domain.jobs import cancel_job
from tenants.domain.access import load_actor
from tests.web.pages.conftest import Site

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
FOLLOWS_WITHIN_MS = 2000


def test_page_follows_its_job_with_all_http_blocked(
    browser: Browser, address: str, site: Site
) -> None:
    """After the page has loaded only the WebSocket is left, and the page shows the change."""
    bob, job = site.people.bob, site.bobs
    client = Client()
    client.force_login(bob)
    cookie = client.cookies[settings.SESSION_COOKIE_NAME]
    context = browser.new_context()
    context.add_cookies([{"name": cookie.key, "value": cookie.value, "url": address}])
    page = context.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(f"{address}/jobs/{job.id}/")
    expect(page.locator("[data-live-badge]")).to_have_attribute("data-live-state", "live")
    ended = page.locator("#job-header").get_by_text("Cancelled").first
    expect(ended).not_to_be_visible()
    context.route("**/*", lambda route: route.abort())

    cancel_job(actor=load_actor(bob), job_id=job.id, now=datetime.now(UTC))
    hint = {"topic": topics.job(job.id), "seq": 2, "kind": "state"}
    Redis.from_url(settings.REDIS_URL).publish(topics.LIVE_CHANNEL, json.dumps(hint))

    expect(ended).to_be_visible(timeout=FOLLOWS_WITHIN_MS)
    assert faults == []
    context.close()
