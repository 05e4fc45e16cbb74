"""What stands at every door: headers, the token against forged requests, hosts, limits of guesses.

Headers are looked at on a share of the addresses by turns; TERRACE_WHOLE_MATRIX=1 looks at all.
"""

from __future__ import annotations

import re
import threading
import zlib
from datetime import UTC, datetime

import pytest
from django.contrib.auth.signals import user_login_failed
from django.core.cache import cache
from django.core.management import call_command
from django.db import connections
from django.test import Client

from controlplane.api.v1 import events
from controlplane.live import watch
from tests.people import PASSWORD, make_user
from tests.web.walls.routes import Route, routes
from tests.web.walls.scene import chosen, is_whole, make_scene

UNSAFE = frozenset({"post", "put", "patch", "delete"})
SHARE = 8
FORBIDDEN, NO_METHOD = 403, 405
NONCE = re.compile(r"'nonce-[^']+'")
POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'self'",
    "frame-ancestors": "'none'",
    "object-src": "'none'",
}
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
LIMIT = 5
"""Wrong passwords for one login in five minutes."""


def looked_at() -> list[Route]:
    """Return the addresses of this run."""
    today = datetime.now(UTC).toordinal()
    return [
        route
        for route in chosen(routes())
        if route.method == "get"
        and (is_whole() or (zlib.crc32(route.path.encode()) + today) % SHARE == 0)
    ]


def policy_of(header: str) -> dict[str, str]:
    """Return the directives of a policy, without nonces."""
    parts = [NONCE.sub("", one).split() for one in header.split(";") if one.strip()]
    return {name: " ".join(values) for name, *values in parts}


@pytest.mark.django_db
def test_every_reply_carries_the_headers() -> None:
    """No address answers without the policy of content and the rest, whoever asks."""
    scene = make_scene()
    wrong: list[str] = []

    for route in looked_at():
        for user in (None, scene.root):
            reply = scene.client(user).get(route.address(scene.value))
            policy = policy_of(reply.headers.get("Content-Security-Policy", ""))
            if {name: policy.get(name) for name in POLICY} != POLICY or "unsafe" in str(policy):
                wrong.append(f"{route.path}: {policy}")
            found = {name: reply.headers.get(name) for name in HEADERS}
            if found != HEADERS:
                wrong.append(f"{route.path}: {found}")

    assert wrong == []


@pytest.mark.django_db
def test_every_unsafe_address_wants_the_token_against_forged_requests() -> None:
    """With a session and without the token nothing is changed, by pages and API alike."""
    scene = make_scene()
    client = Client(enforce_csrf_checks=True)
    client.force_login(scene.root)

    statuses = {
        f"{route.method} {route.path}": getattr(client, route.method)(
            route.address(scene.value), {}, content_type="application/json"
        ).status_code
        for route in chosen(routes())
        if route.method in UNSAFE
    }

    wrong = {where: code for where, code in statuses.items() if code not in {FORBIDDEN, NO_METHOD}}
    assert wrong == {}
    assert len(statuses) > 100


@pytest.mark.django_db
def test_a_foreign_host_is_refused() -> None:
    """A request for another name than ours gets nothing, so that no link is made with it."""
    reply = Client(headers={"host": "evil.example"}).get("/accounts/password/reset/")

    assert reply.status_code == 400
    assert b"evil.example" not in reply.content


@pytest.mark.django_db
@pytest.mark.parametrize(
    "target", ["https://evil.example/", "//evil.example/", "/\\evil.example", "javascript:alert(1)"]
)
def test_the_way_on_stays_here(target: str) -> None:
    """After signing in and after choosing a language nobody is sent to another site."""
    make_user("somebody", PASSWORD)
    client = Client()

    language = client.post("/preferences/language/", {"language": "en", "next": target})
    signed_in = client.post(
        "/accounts/login/", {"login": "somebody", "password": PASSWORD, "next": target}
    )

    assert [language.headers["Location"], signed_in.headers["Location"]] == ["/", "/"]


@pytest.mark.django_db
def test_signing_in_changes_the_session() -> None:
    """A session that somebody else planted is not the one that is signed in afterwards."""
    make_user("somebody", PASSWORD)
    client = Client()
    client.get("/accounts/login/?next=/jobs/")
    planted = client.session.session_key

    client.post("/accounts/login/", {"login": "somebody", "password": PASSWORD})

    assert client.session.session_key not in {None, planted}


@pytest.mark.django_db(transaction=True)
def test_parallel_guesses_are_counted_exactly() -> None:
    """Of many wrong passwords at once no more are tried than the limit lets."""
    call_command("createcachetable", verbosity=0)
    cache.clear()  # the table is no model's: other tests do not empty it
    make_user("somebody", PASSWORD)
    tried: list[object] = []
    statuses: list[int] = []
    together = threading.Barrier(12)

    def note(**given: object) -> None:
        tried.append(given["credentials"])

    def guess() -> None:
        try:
            together.wait()
            reply = Client().post("/accounts/login/", {"login": "somebody", "password": "wrong"})
            statuses.append(reply.status_code)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=guess) for _ in range(together.parties)]
    user_login_failed.connect(note)
    try:
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    finally:
        user_login_failed.disconnect(note)
        cache.clear()

    assert len(statuses) == together.parties
    assert set(statuses) <= {200, 429}
    assert 1 <= len(tried) <= LIMIT


def test_what_is_taken_away_is_gone_within_five_seconds() -> None:
    """Sockets and streams look again often enough: even a check that just began too early."""
    slack = 1.0

    assert watch.RECHECK_SECONDS + slack <= 5
    assert events.RECHECK_SECONDS + events.LOOK_SECONDS + slack <= 5
