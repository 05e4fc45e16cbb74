"""Each page shows a tenant's things to those who may read them, and to nobody else."""

from collections.abc import Callable

import pytest
from django.test import Client

from tenants.models import User
from tests.web.pages.conftest import Site

Browse = Callable[[User], Client]

EVERYBODY = (
    "/",
    "/jobs/",
    "/jobs/new/",
    "/queues/",
    "/cluster/",
    "/activity/",
    "/admin/images/",
    "/admin/quotas/",
    "/admin/secrets/",
    "/palette/",
    "/jobs/export.csv",
    "/jobs/newer/",
    "/notifications/",
    "/templates/",
)
JOB_TABS = ("", "tasks/", "timeline/", "metrics/", "why/", "spec/", "events/", "files/")


@pytest.mark.usefixtures("site")
def test_pages_send_strangers_to_sign_in() -> None:
    """Nobody who is not signed in sees a page; each leads to the sign-in."""
    client = Client()

    found = {path: client.get(path).headers.get("Location") for path in EVERYBODY}

    assert found == {path: f"/accounts/login/?next={path}" for path in EVERYBODY}


@pytest.mark.parametrize("path", EVERYBODY)
def test_pages_open_for_each_person(site: Site, browse: Browse, path: str) -> None:
    """Every signed-in person, whatever their grants, gets each shared page."""
    statuses = [browse(user).get(path).status_code for user in site.people.everyone]

    assert statuses == [200, 200, 200, 200]


@pytest.mark.parametrize("tab", JOB_TABS)
def test_job_is_hidden_from_another_tenant(site: Site, browse: Browse, tab: str) -> None:
    """A job's every tab is 404 for a person of another tenant and 200 for its own and for Root."""
    people = site.people
    path = f"/jobs/{site.bobs.id}/{tab}"

    found = [
        browse(user).get(path).status_code
        for user in (people.bob, people.alice, people.root, people.charlie)
    ]

    assert found == [200, 200, 200, 404]


def test_job_logs_need_the_right_to_read_them(site: Site, browse: Browse) -> None:
    """The owner, the unit's administrator and Root read the log; a stranger gets 404."""
    people = site.people
    path = f"/jobs/{site.bobs.id}/logs/"

    found = [
        browse(user).get(path).status_code
        for user in (people.bob, people.alice, people.root, people.charlie)
    ]

    assert found == [200, 200, 200, 404]


@pytest.mark.parametrize(
    "path",
    ["/", "/jobs/", "/jobs/export.csv", "/queues/", "/cluster/", "/palette/?q=secret"],
)
def test_names_of_another_tenant_do_not_leak(site: Site, browse: Browse, path: str) -> None:
    """Bob's pages hold neither the name of Charlie's job nor that of Charlie's queue."""
    reply = browse(site.people.bob).get(path)
    text = reply.getvalue().decode() if reply.streaming else reply.content.decode()

    assert "charlies-secret" not in text
    assert ">mill<" not in text


def test_counters_count_only_what_is_visible(site: Site, browse: Browse) -> None:
    """The tabs' counters of Bob and Charlie hold one job each, Root's hold both."""
    people = site.people

    counts = [
        {name: count for name, _label, count in browse(user).get("/jobs/").context["tabs"]}
        for user in (people.bob, people.charlie, people.root)
    ]

    assert [count["all"] for count in counts] == [1, 1, 2]
    assert [count["waiting"] for count in counts] == [1, 1, 2]


@pytest.mark.parametrize("path", ["/jobs/?q=%00", "/palette/?q=a%00", "/admin/people/?name=%00"])
def test_what_no_column_holds_is_a_bad_request(site: Site, browse: Browse, path: str) -> None:
    """NUL in an address is a fault of whoever made it, and not one of the server."""
    assert browse(site.people.root).get(path).status_code == 400


def test_queue_page_is_hidden_from_another_tenant(site: Site, browse: Browse) -> None:
    """A queue's page is 404 for a person of another tenant."""
    people = site.people

    found = [
        browse(user).get("/queues/robots/").status_code
        for user in (people.bob, people.alice, people.root, people.charlie)
    ]

    assert found == [200, 200, 200, 404]


@pytest.mark.parametrize("path", ["/admin/health/", "/cluster/join/"])
def test_administration_is_for_the_platform_admin(site: Site, browse: Browse, path: str) -> None:
    """Health and adding machines open for Root alone."""
    statuses = [browse(user).get(path).status_code for user in site.people.everyone]

    assert statuses[0] == 200
    assert set(statuses[1:]) <= {403, 404}


def test_variables_are_shown_to_those_who_may_see_them(site: Site, browse: Browse) -> None:
    """The spec shows the values of variables to the owner."""
    text = browse(site.people.bob).get(f"/jobs/{site.bobs.id}/spec/").content.decode()

    assert "EPOCHS: &#x27;10&#x27;" in text


def test_absent_scheduler_is_said_on_every_page(site: Site, browse: Browse) -> None:
    """Without a live lease of the scheduler each page carries the banner; with one, none does."""
    from scheduling.models import Lease

    client = browse(site.people.bob)
    before = client.get("/jobs/").content.decode()
    Lease.objects.update(expires_at="2020-01-01T00:00Z")
    after = client.get("/jobs/").content.decode()

    assert "The scheduler is absent" not in before
    assert "The scheduler is absent" in after


def test_language_is_chosen_and_lasts(site: Site, browse: Browse) -> None:
    """After choosing Chinese the pages speak it, and say so to the browser."""
    client = browse(site.people.bob)

    client.post("/preferences/language/", {"language": "zh-hans", "next": "/jobs/"})
    text = client.get("/jobs/").content.decode()

    assert '<html lang="zh-hans"' in text
    assert "<h1>作业</h1>" in text


def test_first_password_leads_to_choosing_ones_own(site: Site, browse: Browse) -> None:
    """Who signed in with a password that somebody else made is sent to change it."""
    user = site.people.bob
    user.must_change_password = True
    user.save()

    reply = browse(user).get("/jobs/")

    assert reply.headers["Location"] == "/accounts/password/change/"
