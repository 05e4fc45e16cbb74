"""Units, accounts, grants and sessions by API: what the pages can do, previews and versions."""

from __future__ import annotations

from typing import Any

import pytest
from rest_framework.test import APIClient

from tenants.domain import tokens
from tenants.domain.access import load_actor
from tenants.models import AccountLink, BrowserSession, Grant, IdempotencyKey, OrgUnit, User
from tests.people import NOW, make_grant
from tests.web.api.conftest import As, Site

pytestmark = pytest.mark.django_db

PASSWORD = "a lantern over quiet water"


def post(client: APIClient, address: str, body: dict[str, Any], **headers: str) -> Any:
    """Post JSON; return the reply."""
    return client.post(f"/api/v1/{address}", body, format="json", headers=headers)


def test_invitation_shows_its_link_once(site: Site, as_user: As) -> None:
    """The first reply has the address; its repetition and the stored reply do not."""
    client = as_user(site.people.alice)
    body = {
        "username": "dora",
        "role": "researcher",
        "unit_id": str(site.people.vision.id),
        "invite": True,
    }

    first, again = (post(client, "users", body, **{"Idempotency-Key": "once"}) for _ in range(2))

    secret = first.json()["link"]["url"].split("/")[-2]
    assert (first.status_code, first.json()["state"]) == (201, "invited")
    assert "url" not in again.json()["link"]
    assert secret not in str(IdempotencyKey.objects.get().reply)
    assert secret not in str(list(AccountLink.objects.values()))


def test_invited_account_has_no_password_given(site: Site, as_user: As) -> None:
    """Who invites does not choose the password; a service account is not invited."""
    body = {
        "username": "dora",
        "role": "researcher",
        "unit_id": str(site.people.vision.id),
        "invite": True,
        "password": PASSWORD,
        "is_service": True,
    }

    reply = post(as_user(site.people.alice), "users", body)

    assert {one["field"] for one in reply.json()["errors"]} == {"password", "invite"}
    assert not User.objects.filter(username="dora").exists()


def test_account_is_changed_as_it_was_seen(site: Site, as_user: As) -> None:
    """Names and address are edited under the version; a second writer is told."""
    client = as_user(site.people.alice)
    address = f"/api/v1/users/{site.people.bob.id}"
    headers = {"If-Match": client.get(address)["ETag"]}

    replies = [
        client.patch(address, {"first_name": name}, format="json", headers=headers)
        for name in ("Bob", "Robert")
    ]

    assert [one.status_code for one in replies] == [200, 412]
    assert replies[0].json()["first_name"] == "Bob"


def test_account_is_removed_and_taken_back(site: Site, as_user: As) -> None:
    """DELETE takes grants and tokens; enabling brings the account back without them."""
    client = as_user(site.people.alice)
    address = f"/api/v1/users/{site.people.bob.id}"

    preview = post(client, f"users/{site.people.bob.id}/preview", {"change": "remove"}).json()
    gone = client.delete(address)
    state = client.get(address).json()["state"]
    back = client.patch(address, {"is_active": True}, format="json")

    assert (preview["grants"], preview["waiting"]) == (1, 1)
    assert (gone.status_code, state, back.json()["state"]) == (204, "removed", "invited")
    assert not Grant.objects.filter(user=site.people.bob).exists()


def test_nobody_removes_themselves_or_strangers(site: Site, as_user: As) -> None:
    """One's own account is refused, that of another tenant is not there."""
    client = as_user(site.people.alice)

    statuses = [
        client.delete(f"/api/v1/users/{user.id}").status_code
        for user in (site.people.alice, site.people.charlie)
    ]

    assert statuses == [403, 404]


@pytest.mark.parametrize("what", ["reset-password", "end-sessions", "remove-second-factor"])
def test_acts_on_accounts_are_for_their_admins(what: str, site: Site, as_user: As) -> None:
    """An admin of all of Bob's units may; a viewer of them and a stranger may not."""
    dora = User.objects.create(username="dora")
    make_grant(dora, "queue_manager", site.people.lab)  # type: ignore[arg-type]  # its value
    address = f"users/{site.people.bob.id}/{what}"

    statuses = [
        post(as_user(user), address, {}).status_code
        for user in (site.people.alice, dora, site.people.charlie)
    ]

    assert statuses == [201 if what == "reset-password" else 200, 403, 404]


def test_sessions_end_with_the_reset(site: Site, as_user: As) -> None:
    """A browser that was signed in is not any more."""
    browser = APIClient()
    browser.force_login(site.people.bob)
    before = browser.get("/api/v1/me").status_code

    post(as_user(site.people.alice), f"users/{site.people.bob.id}/reset-password", {})

    assert (before, browser.get("/api/v1/me").status_code) == (200, 401)
    assert not BrowserSession.objects.filter(user=site.people.bob).exists()


def test_grant_is_previewed_both_ways(site: Site, as_user: As) -> None:
    """What would be gained and what would be lost are named, and nothing is written."""
    client = as_user(site.people.alice)
    body = {
        "user_id": str(site.people.bob.id),
        "role": "org_admin",
        "unit_id": str(site.people.vision.id),
    }
    grant = Grant.objects.get(user=site.people.bob)

    gained = post(client, "grants:preview", body).json()
    lost = client.get(f"/api/v1/grants/{grant.id}").json()

    assert "grant.edit" in gained["verbs"]
    assert {one["what"]: one["names"] for one in lost["sight"]}["job"] == ["bobs-training"]
    assert lost["jobs_left"] == 1
    assert Grant.objects.filter(user=site.people.bob).count() == 1


def test_preview_refuses_what_the_change_would(site: Site, as_user: As) -> None:
    """A role above one's own is refused in the preview already."""
    body = {"user_id": str(site.people.bob.id), "role": "platform_admin"}

    reply = post(as_user(site.people.alice), "grants:preview", body)

    assert reply.status_code in {403, 404}


def test_unit_change_is_previewed(site: Site, as_user: As) -> None:
    """Whose view changes and which queues move is said; nothing moves."""
    client = as_user(site.people.root)
    body = {"change": "move", "target_id": str(site.people.speech.id)}

    effect = post(client, f"units/{site.people.robots.id}/preview", body).json()

    assert effect["people"] == [{"username": "bob", "before": ["researcher"], "after": []}]
    [queue] = effect["queues"]
    assert (queue["queue"], queue["parent_before"], queue["parent_after"]) == (
        "robots",
        "vision",
        "root",
    )
    assert (queue["waiting"], [one["cluster"] for one in effect["clusters"]]) == (1, ["main"])
    assert OrgUnit.objects.get(id=site.people.robots.id).parent == site.people.vision


def test_units_merge_under_a_version(site: Site, as_user: As) -> None:
    """Merging needs If-Match, and answers with the unit that took over."""
    client = as_user(site.people.alice)
    address = f"units/{site.people.speech.id}/merge"
    body = {"into_id": str(site.people.robots.id)}

    without = post(client, address, body)
    merged = post(client, address, body, **{"If-Match": '"v1"'})

    assert (without.status_code, merged.status_code) == (428, 200)
    assert merged.json()["name"] == "robots"
    assert OrgUnit.objects.get(id=site.people.speech.id).is_archived


def test_own_password_needs_the_old_one(site: Site) -> None:
    """A wrong old password is said at its field; the right one changes it and ends the session."""
    bob = site.people.bob
    bob.set_password(PASSWORD)
    bob.save()
    client = APIClient()
    client.force_login(bob)
    new = f"{PASSWORD} and more"

    wrong = post(client, "me/password", {"old_password": "no", "new_password": new})
    right = post(client, "me/password", {"old_password": PASSWORD, "new_password": new})

    bob.refresh_from_db()
    assert [one["field"] for one in wrong.json()["errors"]] == ["old_password"]
    assert right.status_code == 204
    assert bob.check_password(new)


def test_sessions_are_listed_and_ended(site: Site) -> None:
    """A person sees both browsers, without their keys, and ends the other one."""
    here, there = APIClient(), APIClient()
    here.force_login(site.people.bob)
    there.force_login(site.people.bob)

    listed = here.get("/api/v1/me/sessions").json()["items"]
    other = next(one for one in listed if not one["is_current"])
    gone = here.delete(f"/api/v1/me/sessions/{other['id']}")
    again = here.delete(f"/api/v1/me/sessions/{other['id']}")

    assert len(listed) == 2
    assert str(there.session.session_key) not in str(listed)
    assert (gone.status_code, again.status_code) == (204, 404)
    assert there.get("/api/v1/me").status_code == 401
    assert here.get("/api/v1/me").status_code == 200


@pytest.mark.parametrize(
    ("method", "address"),
    [("patch", "me"), ("post", "me/password"), ("delete", "me/sessions")],
)
def test_token_does_not_take_the_account_over(method: str, address: str, site: Site) -> None:
    """What only the person may do is refused to their token."""
    bob = site.people.bob
    _, secret = tokens.create_token(
        actor=load_actor(bob),
        user=bob,
        name="ci",
        verbs=[],
        unit=None,
        expires_at=NOW.replace(year=NOW.year + 1),
        now=NOW,
    )
    client = APIClient(headers={"Authorization": f"Bearer {secret}"})

    reply = getattr(client, method)(f"/api/v1/{address}", {}, format="json")

    assert (reply.status_code, reply.json()["code"]) == (403, "sign_in_for_this")


def test_preferences_are_patched(site: Site, as_user: As) -> None:
    """Zone and language are checked and kept."""
    client = as_user(site.people.bob)

    wrong = client.patch("/api/v1/me", {"time_zone": "Mars/Base"}, format="json")
    right = client.patch("/api/v1/me", {"time_zone": "Asia/Shanghai"}, format="json")

    assert [one["field"] for one in wrong.json()["errors"]] == ["time_zone"]
    assert right.json()["time_zone"] == "Asia/Shanghai"


def test_service_account_stays_in_its_unit(site: Site, as_user: As) -> None:
    """It is owned by a unit, shows so, and gets no role outside."""
    client = as_user(site.people.alice)
    made = post(
        client,
        "users",
        {
            "username": "ci",
            "role": "researcher",
            "unit_id": str(site.people.vision.id),
            "is_service": True,
        },
    ).json()
    body = {"user_id": made["id"], "role": "viewer", "unit_id": str(site.people.speech.id)}

    outside = post(client, "grants", body)

    assert made["home_unit_id"] == str(site.people.vision.id)
    assert [one["code"] for one in outside.json()["errors"]] == ["service_outside_home"]
