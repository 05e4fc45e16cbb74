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
from scheduling.models import Job, MetricSample
from tenants.domain.access import load_actor
from tests.factories.demo import run_task
from tests.process.fake_gateway import wait_for
from tests.web.pages.conftest import Site

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
FOLLOWS_WITHIN_MS = 2000


def tell(job: Job, *, seq: int, kind: str) -> None:
    """Hint at a change of the job, as the loops and the gateway do."""
    hint = {"topic": topics.job(job.id), "seq": seq, "kind": kind}
    Redis.from_url(settings.REDIS_URL).publish(topics.LIVE_CHANNEL, json.dumps(hint))


def test_page_follows_its_job_with_all_http_blocked(
    browser: Browser, address: str, site: Site
) -> None:
    """After the page has loaded only the WebSocket is left, and the page shows the change."""
    bob, job = site.people.bob, site.bobs
    attempt = run_task(job.tasks.get(index=0), site.node, site.robots, [], site.now)
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
    wait_for(lambda: page.evaluate("Boolean(window.Plotly)"), 60)
    context.route("**/*", lambda route: route.abort())
    page.on("requestfailed", lambda request: faults.append(request.url))

    for line in range(2):
        MetricSample.objects.create(
            job=job, attempt=attempt, line=line, at=datetime.now(UTC), values={"loss": 0.5 - line}
        )
    tell(job, seq=2, kind="metrics")
    expect(page.locator("#job-metrics .chart-canvas svg").first).to_be_visible()
    cancel_job(actor=load_actor(bob), job_id=job.id, now=datetime.now(UTC))
    tell(job, seq=3, kind="state")

    expect(ended).to_be_visible(timeout=FOLLOWS_WITHIN_MS)
    assert faults == []
    context.close()
