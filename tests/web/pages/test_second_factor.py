"""A second factor: set up on one's profile, asked for at sign-in, replaced by a code, removed."""

from __future__ import annotations

import base64
import hashlib
import hmac
import struct
import time

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.signals import authenticator_removed
from django.db import DatabaseError
from django.test import Client

from tenants.domain import users
from tenants.models import AuditRow, User
from tests.people import NOW, PASSWORD, People

PERIOD_SECONDS = 30


def code_of(secret: str, at: float) -> str:
    """Compute the code of an authenticator app (RFC 6238)."""
    counter = struct.pack(">Q", int(at) // PERIOD_SECONDS)
    digest = hmac.new(base64.b32decode(secret), counter, hashlib.sha1).digest()
    start = digest[-1] & 15
    number = struct.unpack(">I", digest[start : start + 4])[0] & 0x7FFFFFFF
    return f"{number % 1_000_000:06d}"


def sign_in(user: User) -> tuple[Client, str]:
    """Sign in by password; return the browser and where it is led."""
    client = Client()
    reply = client.post("/accounts/login/", {"login": user.username, "password": PASSWORD})
    return client, reply.get("Location", "")


@pytest.fixture
def bob(people: People) -> User:
    people.bob.set_password(PASSWORD)
    people.bob.save()
    return people.bob


def proven(user: User) -> Client:
    """Sign in and give the password once more, as changing how one signs in demands."""
    client, _ = sign_in(user)
    asked = client.get("/accounts/2fa/totp/activate/")
    assert asked["Location"].startswith("/accounts/reauthenticate/")
    client.post(asked["Location"], {"password": PASSWORD})
    return client


def enrol(user: User, browser: Client | None = None) -> str:
    """Set up an authenticator app; return its secret."""
    client = browser or proven(user)
    page = client.get("/accounts/2fa/totp/activate/")
    secret: str = page.context["form"].secret
    reply = client.post("/accounts/2fa/totp/activate/", {"code": code_of(secret, time.time())})
    assert reply.status_code == 302, reply.content.decode()[:2000]
    return secret


def test_factor_is_asked_for_at_sign_in(bob: User) -> None:
    """Neither the password alone nor a wrong code lets in; the app's code does."""
    secret = enrol(bob)
    client, where = sign_in(bob)

    wrong = client.post(where, {"code": "000000"})
    refused = client.get("/").status_code
    client.post(where, {"code": code_of(secret, time.time() + PERIOD_SECONDS)})

    assert where == "/accounts/2fa/authenticate/"
    assert (wrong.status_code, refused) == (200, 302)
    # The code that enrolled is spent, so the next period's was sent: clocks may differ by one.
    assert client.get("/").status_code == 200


def test_recovery_code_lets_in_once(bob: User) -> None:
    """A code from the list stands in for a lost phone, and is spent by it."""
    enrol(bob)
    codes = Authenticator.objects.get(user=bob, type="recovery_codes").wrap().get_unused_codes()
    client, where = sign_in(bob)

    client.post(where, {"code": codes[0]})
    other, other_where = sign_in(bob)
    other.post(other_where, {"code": codes[0]})

    assert client.get("/").status_code == 200
    assert other.get("/").status_code == 302


def test_seed_is_sealed_in_the_database(bob: User) -> None:
    """Who reads the table cannot make codes."""
    secret = enrol(bob)

    assert secret not in str(list(Authenticator.objects.values("data")))


def test_admin_removes_a_lost_factor(people: People, bob: User) -> None:
    """Afterwards the password alone lets in, until another factor is set up."""
    enrol(bob)

    users.remove_second_factor(actor=people.actor(people.alice), user_id=bob.id, now=NOW)

    client, where = sign_in(bob)
    assert where == "/"
    assert client.get("/profile/").status_code == 200


def test_factor_pages_are_there(bob: User) -> None:
    """The pages that the profile leads to open."""
    client = proven(bob)

    found = {
        path: client.get(f"/accounts/{path}").status_code
        for path in ("2fa/", "2fa/totp/activate/", "2fa/webauthn/", "2fa/webauthn/add/")
    }

    assert set(found.values()) == {200}


def recorded(user: User) -> list[tuple[str, str, list[str], list[str]]]:
    """Return what the record says of somebody's second factors, oldest first."""
    rows = AuditRow.objects.filter(action__contains="second_factor", subject_id=str(user.id))
    return [
        (row.action, row.actor_label, (row.before or {})["factors"], (row.after or {})["factors"])
        for row in rows.order_by("id")
    ]


def test_factors_that_people_set_up_and_remove_are_recorded(bob: User) -> None:
    """Enrolment and removal each have an audit row of the person, without a seed or a code."""
    client = proven(bob)
    enrol(bob, client)
    enrolled = recorded(bob)

    reply = client.post("/accounts/2fa/totp/deactivate/")

    assert reply.status_code == 302
    assert [(one[0], one[3]) for one in enrolled] == [
        ("user.add_second_factor", ["totp"]),
        ("user.add_second_factor", ["recovery_codes"]),
    ]
    assert [(one[0], one[2]) for one in recorded(bob)[2:]] == [
        ("user.remove_second_factor", ["totp"]),
        ("user.remove_second_factor", ["recovery_codes"]),
    ]
    assert {one[1] for one in recorded(bob)} == {"bob"}
    assert not Authenticator.objects.filter(user=bob).exists()


def test_removal_and_its_record_stand_or_fall_together(bob: User) -> None:
    """Where something fails after both were written, neither is there."""
    client = proven(bob)
    enrol(bob, client)

    def fail(**_: object) -> None:
        raise DatabaseError("the connection is gone")

    authenticator_removed.connect(fail)
    try:
        with pytest.raises(DatabaseError):
            client.post("/accounts/2fa/totp/deactivate/")
    finally:
        authenticator_removed.disconnect(fail)

    assert Authenticator.objects.filter(user=bob, type="totp").exists()
    assert [one[0] for one in recorded(bob)] == ["user.add_second_factor"] * 2


def test_password_chosen_at_sign_in_is_recorded(bob: User) -> None:
    """Changing one's own password on the pages leaves an audit row, as by the API."""
    client, _ = sign_in(bob)
    wanted = "a-much-longer-word-91"

    reply = client.post(
        "/accounts/password/change/",
        {"oldpassword": PASSWORD, "password1": wanted, "password2": wanted},
    )

    assert reply.status_code == 302
    assert AuditRow.objects.filter(action="user.set_password", actor=bob).count() == 1
