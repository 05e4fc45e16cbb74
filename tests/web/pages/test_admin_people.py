"""The organisation and its people by page: made, looked at, changed with the effect first."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape

import pytest
from django.conf import settings
from django.core import mail
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tenants.models import AccountLink, ApiToken, AuditRow, Grant, GrantRole, OrgUnit, User
from tests.people import PASSWORD, make_grant, make_unit
from tests.web.pages.conftest import Site

Browse = Callable[[User], Client]
NEW_PASSWORD = "a lantern over quiet water"


def text_of(reply: object) -> str:
    """Return what a reader of the page reads."""
    body = getattr(reply, "content", b"").decode()
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", body)))


def link_in(reply: object) -> str:
    """Return the path of the one-use link that a page shows."""
    found = re.search(r"/join/[\w-]+/", text_of(reply))
    assert found is not None
    return found[0]


# --- units ----------------------------------------------------------------------------------------


def test_tree_shows_units_and_their_queues(site: Site, browse: Browse) -> None:
    """An admin sees the units of the tenant with the queues on them, and nothing of others."""
    text = text_of(browse(site.people.alice).get("/admin/org/"))

    assert "vision" in text
    assert "robots" in text
    assert "mill" not in text


def test_ancestors_are_names_only(site: Site, browse: Browse) -> None:
    """Of what lies above one's own units the name is shown, without a way in."""
    page = browse(site.people.bob).get("/admin/org/")

    assert "not yours to see" in text_of(page)
    assert f"/admin/org/{site.people.lab.id}/" not in page.content.decode()


def test_unit_is_made_below_another(site: Site, browse: Browse) -> None:
    """A new unit lies below the chosen one; its page is shown."""
    reply = browse(site.people.alice).post(
        "/admin/org/new/",
        {"name": "drones", "kind": "team", "target": str(site.people.vision.id)},
        follow=True,
    )

    made = OrgUnit.objects.get(name="drones")
    assert made.parent == site.people.vision
    assert reply.request["PATH_INFO"] == f"/admin/org/{made.id}/"


def test_new_unit_goes_below_one_unless_a_tenant_is_asked_for(site: Site, browse: Browse) -> None:
    """Who comes to add a department does not make a tenant by leaving the fields as they are."""
    form = browse(site.people.root).get("/admin/org/new/?kind=department").context["form"]

    assert OrgUnit.objects.filter(id=form.values["target"]).exists()


def test_admin_leads_to_the_organisation(site: Site, browse: Browse) -> None:
    """The address that people type is not a dead end."""
    reply = browse(site.people.root).get("/admin/")

    assert reply.status_code == 302
    assert reply["Location"] == "/admin/org/"


def test_error_of_a_new_unit_stands_at_its_field(site: Site, browse: Browse) -> None:
    """A name that is taken is said at the name, with what was typed kept."""
    reply = browse(site.people.alice).post(
        "/admin/org/new/", {"name": "vision", "kind": "team", "target": str(site.people.lab.id)}
    )

    body = reply.content.decode()
    assert reply.status_code == 422
    assert 'id="name-error"' in body
    assert 'value="vision"' in body


@pytest.mark.parametrize(("who", "status"), [("bob", 404), ("charlie", 404), ("alice", 200)])
def test_who_sees_a_unit(site: Site, browse: Browse, who: str, status: int) -> None:
    """The page of a unit above one's own, or of strangers, does not exist."""
    client = browse(getattr(site.people, who))

    assert client.get(f"/admin/org/{site.people.lab.id}/").status_code == status


def test_move_shows_its_effect_and_then_moves(site: Site, browse: Browse) -> None:
    """Bob, researcher of vision, is told to lose sight of robots; the queue moves along."""
    client = browse(site.people.root)
    address = f"/admin/org/{site.people.robots.id}/move/"
    wanted = {"target": str(site.people.speech.id), "version": "1", "reason": "reorganised"}

    shown = text_of(client.post(address, {**wanted, "action": "preview"}))
    before = OrgUnit.objects.get(id=site.people.robots.id).parent
    client.post(address, {**wanted, "action": "apply"})

    site.people.robots.refresh_from_db()
    assert "bob Researcher none" in shown
    assert "sees it no longer" in shown
    assert "vision → root" in shown
    assert before == site.people.vision
    assert site.people.robots.parent == site.people.speech
    assert AuditRow.objects.get(action="org_unit.move").reason == "reorganised"


def test_stale_change_is_refused_with_what_is_there_now(site: Site, browse: Browse) -> None:
    """Whoever saw another version is told, and the next try is about the present one."""
    OrgUnit.objects.filter(id=site.people.speech.id).update(version=7, name="sound")

    reply = browse(site.people.alice).post(
        f"/admin/org/{site.people.speech.id}/rename/",
        {"name": "voice", "version": "1", "action": "apply"},
    )

    assert reply.status_code == 409
    assert "Somebody was faster" in text_of(reply)
    assert 'name="version" value="7"' in reply.content.decode()
    assert OrgUnit.objects.get(id=site.people.speech.id).name == "sound"


def test_archive_says_what_stands_in_the_way(site: Site, browse: Browse) -> None:
    """A unit in use is not archived, and the page offers no button for it."""
    reply = browse(site.people.alice).get(f"/admin/org/{site.people.vision.id}/archive/")

    assert reply.status_code == 422
    assert "units below “vision” are in use" in text_of(reply)
    assert 'value="apply"' not in reply.content.decode()


def test_merge_by_page(site: Site, browse: Browse) -> None:
    """The effect names the people; afterwards the other unit's page is shown."""
    make_grant(site.people.bob, GrantRole.VIEWER, site.people.speech)
    client = browse(site.people.alice)
    address = f"/admin/org/{site.people.speech.id}/merge/"
    wanted = {"target": str(site.people.robots.id), "version": "1"}

    shown = text_of(client.post(address, {**wanted, "action": "preview"}))
    reply = client.post(address, {**wanted, "action": "apply"})

    site.people.speech.refresh_from_db()
    assert "“robots” takes over" in shown
    assert site.people.speech.is_archived
    assert reply["Location"] == f"/admin/org/{site.people.robots.id}/"


def test_pages_ask_a_bounded_number_of_questions(site: Site, browse: Browse) -> None:
    """A unit, its changes and a person cost at most fifteen queries, however much is on them."""
    client = browse(site.people.alice)
    unit, bob = site.people.speech, site.people.bob
    paths = [f"/admin/org/{unit.id}/", f"/admin/org/{unit.id}/move/", f"/admin/people/{bob.id}/"]
    make_unit("first", unit)
    costs: list[int] = []
    for number in range(2):
        for path in paths:
            client.get(path)
            with CaptureQueriesContext(connection) as queries:
                assert client.get(path).status_code == 200
            costs.append(len(queries))
        child = make_unit(f"child-{number}", unit)
        make_grant(bob, GrantRole.VIEWER, child)
        make_grant(site.people.charlie, GrantRole.VIEWER, unit if number else child)

    assert costs[:3] == costs[3:]
    assert max(costs) <= 15


# --- people ---------------------------------------------------------------------------------------


def invite(client: Client, site: Site, **more: str) -> object:
    """Invite dora as a researcher of vision."""
    wanted = {"username": "dora", "role": "researcher", "target": str(site.people.vision.id)}
    return client.post("/admin/people/invite/", {**wanted, **more})


def test_invited_person_chooses_a_password_once(site: Site, browse: Browse) -> None:
    """The link is shown, opens a form, lets one sign in, and is of no use afterwards."""
    path = link_in(invite(browse(site.people.alice), site))
    stranger = Client()

    weak = stranger.post(path, {"password": "12345", "repeated": "12345"})
    differing = stranger.post(path, {"password": NEW_PASSWORD, "repeated": "another"})
    chosen = stranger.post(path, {"password": NEW_PASSWORD, "repeated": NEW_PASSWORD})
    again = stranger.get(path)
    signed_in = stranger.post("/accounts/login/", {"login": "dora", "password": NEW_PASSWORD})

    assert (weak.status_code, differing.status_code) == (422, 422)
    assert 'id="password-error"' in weak.content.decode()
    assert 'id="repeated-error"' in differing.content.decode()
    assert (chosen.status_code, again.status_code) == (302, 404)
    assert signed_in["Location"] == "/"
    assert path.split("/")[2] not in str(list(AccountLink.objects.values()))


def test_link_is_mailed_where_mail_is_set_up(
    site: Site, browse: Browse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mail brings the address that the page shows; without a mail host none is sent."""
    client = browse(site.people.alice)
    invite(client, site, username="erik", email="erik@terrace.test")
    monkeypatch.setattr(settings, "EMAIL_HOST", "mail.terrace.test")

    shown = invite(client, site, email="dora@terrace.test")

    [sent] = mail.outbox
    assert sent.to == ["dora@terrace.test"]
    assert link_in(shown) in sent.body
    assert "It was mailed to dora@terrace.test" in text_of(shown)


def test_taken_name_stands_at_its_field(site: Site, browse: Browse) -> None:
    """A name that is taken is said at the name."""
    reply = invite(browse(site.people.alice), site, username="bob")

    assert 'id="username-error"' in getattr(reply, "content", b"").decode()


def test_members_see_people_only_where_they_may(site: Site, browse: Browse) -> None:
    """A researcher lists nobody but themselves, and no stranger's page opens."""
    client = browse(site.people.bob)

    listed = text_of(client.get("/admin/people/"))
    status = client.get(f"/admin/people/{site.people.alice.id}/").status_code

    assert "alice" not in listed
    assert status == 404


def test_grant_shows_what_becomes_visible(site: Site, browse: Browse) -> None:
    """Before Charlie gets a role in the lab, its admin reads what Charlie would see."""
    make_grant(site.people.charlie, GrantRole.VIEWER, site.people.speech)
    client = browse(site.people.alice)
    wanted = {"username": "charlie", "role": "viewer", "target": str(site.people.vision.id)}

    shown = text_of(client.post("/admin/grants/new/", {**wanted, "action": "preview"}))
    had = Grant.objects.filter(user=site.people.charlie).count()
    client.post("/admin/grants/new/", {**wanted, "action": "apply"})

    assert "2 units: robots, vision" in shown
    assert "2 queues: robots, vision" in shown
    assert "1 job that waits or runs: bobs-training" in shown
    assert had == 3
    assert Grant.objects.filter(user=site.people.charlie, unit=site.people.vision).exists()


def test_revoke_shows_what_is_lost(site: Site, browse: Browse) -> None:
    """Bob would lose sight of his own job, which goes on."""
    grant = Grant.objects.get(user=site.people.bob)
    client = browse(site.people.alice)

    shown = text_of(client.get(f"/admin/grants/{grant.id}/revoke/"))
    client.post(f"/admin/grants/{grant.id}/revoke/", {"reason": "left"})

    assert "1 job of theirs goes on without them seeing it." in shown
    assert not Grant.objects.filter(id=grant.id).exists()
    assert "vision looks after it" in text_of(client.get("/admin/people/"))


def test_last_admin_keeps_the_role(site: Site, browse: Browse) -> None:
    """The page says why, and offers no button."""
    grant = Grant.objects.get(user=site.people.alice, role=GrantRole.ORG_ADMIN)

    reply = browse(site.people.root).get(f"/admin/grants/{grant.id}/revoke/")

    assert reply.status_code == 422
    assert "It is the last" in text_of(reply)


def test_disable_ends_what_is_open(site: Site, browse: Browse) -> None:
    """Sessions end with the account; enabling brings the roles back, not the sessions."""
    bobs = browse(site.people.bob)
    client = browse(site.people.alice)
    address = f"/admin/people/{site.people.bob.id}/disable/"

    shown = text_of(client.get(address))
    version = User.objects.get(id=site.people.bob.id).version
    client.post(address, {"version": str(version), "reason": "left"})

    assert "1 browser session ends" in shown
    assert bobs.get("/").status_code == 302
    assert not User.objects.get(id=site.people.bob.id).is_active


def test_removed_account_keeps_its_name_and_can_be_taken_back(site: Site, browse: Browse) -> None:
    """Roles and tokens are gone; whoever looked after it finds it and enables it again."""
    client = browse(site.people.alice)
    address = f"/admin/people/{site.people.bob.id}/"
    client.post(f"{address}remove/", {"version": "1"})

    listed = text_of(client.get("/admin/people/?tab=removed"))
    client.post(f"{address}enable/", {"version": "2"})

    site.people.bob.refresh_from_db()
    assert "bob" in listed
    assert (site.people.bob.is_active, site.people.bob.grants.count()) == (True, 0)


def test_two_admins_notice_each_other(site: Site, browse: Browse) -> None:
    """An act on another version of the account is refused."""
    reply = browse(site.people.alice).post(
        f"/admin/people/{site.people.bob.id}/remove/", {"version": "9"}
    )

    assert reply.status_code == 409
    assert Grant.objects.filter(user=site.people.bob).exists()


def test_reset_password_gives_a_link(site: Site, browse: Browse) -> None:
    """The old password is of no use at once; the link leads to a new one."""
    User.objects.filter(id=site.people.bob.id).update(password=make_password())
    client = browse(site.people.alice)

    shown = client.post(f"/admin/people/{site.people.bob.id}/reset_password/", {"version": "1"})
    refused = Client().post("/accounts/login/", {"login": "bob", "password": PASSWORD})

    assert refused.status_code == 200
    assert Client().get(link_in(shown)).status_code == 200


def make_password() -> str:
    """Return the stored form of the password that the tests know."""
    user = User(username="any")
    user.set_password(PASSWORD)
    return user.password


# --- tokens and the profile -----------------------------------------------------------------------


def test_service_account_gets_a_token_that_is_shown_once(site: Site, browse: Browse) -> None:
    """A program's account is owned by a unit; its admin makes, sees and revokes its token."""
    client = browse(site.people.alice)
    client.post(
        "/admin/people/new-service/",
        {"username": "vision-ci", "role": "researcher", "target": str(site.people.vision.id)},
    )
    robot = User.objects.get(username="vision-ci")
    wanted = {"user": str(robot.id), "name": "nightly", "days": "30", "verbs": ["job.create"]}
    made = client.post("/admin/tokens/new/", wanted)

    token = ApiToken.objects.get()
    listed = client.get("/admin/tokens/").content.decode()
    client.post(f"/admin/tokens/{token.id}/revoke/")

    token.refresh_from_db()
    [secret] = re.findall(r"trc_[\w-]{40,}", made.content.decode())
    assert (robot.home, token.verbs) == (site.people.vision, ["job.create"])
    assert token.prefix in listed
    assert secret not in listed
    assert token.revoked_at is not None


def test_profile_ends_other_sessions(site: Site, browse: Browse) -> None:
    """A person sees where they are signed in and ends what is not this browser."""
    here, there = browse(site.people.bob), browse(site.people.bob)

    listed = text_of(here.get("/profile/"))
    here.post("/profile/sessions/end/")

    assert "Sign out everywhere else" in listed
    assert (here.get("/").status_code, there.get("/").status_code) == (200, 302)


def test_preferences_are_kept(site: Site, browse: Browse) -> None:
    """Language and zone are the person's; a zone that nobody knows is said at the field."""
    client = browse(site.people.bob)

    wrong = client.post("/profile/", {"time_zone": "Mars/Base", "language": ""})
    client.post("/profile/", {"time_zone": "Europe/Berlin", "language": "zh-hans"})

    site.people.bob.refresh_from_db()
    assert 'id="time_zone-error"' in wrong.content.decode()
    assert (site.people.bob.time_zone, site.people.bob.language) == ("Europe/Berlin", "zh-hans")


def test_admin_group_is_for_those_who_see_people(site: Site, browse: Browse) -> None:
    """The rail leads to people for admins and not for researchers."""
    shown = [
        "/admin/people/" in browse(user).get("/").content.decode()
        for user in (site.people.alice, site.people.bob)
    ]

    assert shown == [True, False]
