"""Pages of quotas and secrets: who sees and changes what, and that no page gives a value."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pytest_django.fixtures import Settings

from scheduling.domain import quotas
from scheduling.domain.queries import quotas as queries
from scheduling.domain.quotas import Subject
from scheduling.models import Job, Quota, QuotaLimit, QuotaResource, QuotaScope
from tenants.domain import secrets
from tenants.domain.access import SYSTEM, load_actor
from tenants.domain.sealing import Keyring
from tenants.domain.secrets import NewSecret
from tenants.models import OrgUnit, Secret, SecretKind, User
from tests.web.pages.conftest import Site

Browse = Callable[[User], Client]
R = QuotaResource
MOST = 15
CANARY = "canary-2718-never-shown"


@pytest.fixture(autouse=True)
def keyring(settings: Settings) -> None:
    settings.TERRACE_SECRETS_KEYRING = Keyring([os.urandom(32)])


def limit(site: Site, unit: OrgUnit, limits: dict[QuotaResource, int], scope: QuotaScope) -> Quota:
    quota = quotas.set_quota(
        actor=SYSTEM,
        subject=Subject(unit.id, scope),
        limits=limits,
        expected_version=0,
        now=site.now,
    )
    assert quota is not None
    return quota


def text_of(reply: Any) -> str:
    """Return the words of a page on one line (Any: a test client's reply)."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", reply.content.decode()))


# --- quotas ---------------------------------------------------------------------------------------


def test_quota_is_shown_with_its_use(site: Site, browse: Browse) -> None:
    """Bob's waiting job is one of the two that may wait in vision and below."""
    limit(site, site.people.vision, {R.QUEUED_JOBS: 2, R.GPU: 4000}, QuotaScope.UNIT)
    Job.objects.filter(id=site.bobs.id).update(
        phase="Pending", tasks_running=0, tasks_starting=0, tasks_stopping=0
    )

    words = text_of(browse(site.people.bob).get("/admin/quotas/"))

    assert "Waiting jobs: 1 of 2" in words
    assert "GPUs: 0 of 4" in words


def test_many_quotas_come_in_pages(
    site: Site, browse: Browse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By unit and scope; each stands on one page, none is left out."""
    monkeypatch.setattr(queries, "PAGE_SIZE", 2)
    people = site.people
    for unit in (people.vision, people.lab, people.robots):
        limit(site, unit, {R.GPU: 4000}, QuotaScope.EACH_USER)
        limit(site, unit, {R.GPU: 4000}, QuotaScope.UNIT)
    client = browse(people.root)
    told, address = [], "/admin/quotas/"

    while address:
        context = client.get(address).context
        told.append([(view.quota.unit.name, view.quota.scope) for view in context["views"]])
        after = context["next_after"]
        address = f"/admin/quotas/?after={after}" if after else ""

    assert told == [[(name, "each_user"), (name, "unit")] for name in ("lab", "robots", "vision")]


def test_other_tenants_quotas_are_not_shown(site: Site, browse: Browse) -> None:
    """Charlie sees none of the lab's quotas, and cannot open one."""
    quota = limit(site, site.people.vision, {R.GPU: 4000}, QuotaScope.EACH_USER)
    client = browse(site.people.charlie)

    assert "No quota" in text_of(client.get("/admin/quotas/"))
    assert client.get(f"/admin/quotas/edit/?quota={quota.id}").status_code == 404


def test_list_is_narrowed_to_a_unit_that_one_may_read(site: Site, browse: Browse) -> None:
    """A unit's page leads to its quotas; of another tenant's unit there is no such page."""
    limit(site, site.people.vision, {R.GPU: 4000}, QuotaScope.UNIT)
    limit(site, site.people.robots, {R.GPU: 9000}, QuotaScope.UNIT)
    path = f"/admin/quotas/?unit={site.people.robots.id}"

    words = text_of(browse(site.people.alice).get(path))

    assert "Quotas of robots" in words
    assert "GPUs: 0 of 9" in words
    assert "GPUs: 0 of 4" not in words
    assert browse(site.people.charlie).get(path).status_code == 404


@pytest.mark.parametrize(
    ("name", "status"), [("root", 200), ("alice", 200), ("bob", 403), ("charlie", 404)]
)
def test_who_opens_the_form_of_a_quota(site: Site, browse: Browse, name: str, status: int) -> None:
    """Administrators change it; Bob sees it and is denied."""
    quota = limit(site, site.people.vision, {R.GPU: 4000}, QuotaScope.EACH_USER)

    page = browse(getattr(site.people, name)).get(f"/admin/quotas/edit/?quota={quota.id}")

    assert page.status_code == status


def test_form_makes_changes_and_removes_a_quota(site: Site, browse: Browse) -> None:
    """Amounts as people write them; an empty field is not limited."""
    client = browse(site.people.alice)
    form = {
        "unit": str(site.people.vision.id),
        "scope": "each_user",
        "user": "",
        "version": "0",
        "running_jobs": "3",
        "memory": "2Gi",
        "gpu": "1.5",
        "reason": "fair",
    }

    client.post("/admin/quotas/edit/", form)
    quota = Quota.objects.get()
    assert quotas.limits_of(quota) == {R.RUNNING_JOBS: 3, R.MEMORY: 2 * 1024**3, R.GPU: 1500}

    changed = {"version": "1", "gpu": "2", "action": "save"}
    client.post(f"/admin/quotas/edit/?quota={quota.id}", changed)
    assert list(QuotaLimit.objects.values_list("resource", "amount")) == [(str(R.GPU), 2000)]

    client.post(f"/admin/quotas/edit/?quota={quota.id}", {"version": "2", "action": "remove"})
    assert not Quota.objects.exists()


@pytest.mark.parametrize(
    ("field", "typed", "words"),
    [
        ("running_jobs", "many", "“many” is no whole number"),
        ("gpu", "eight", "eight"),
        ("unit", "", "needed"),
    ],
)
def test_wrong_limit_is_named_at_its_field(
    site: Site, browse: Browse, field: str, typed: str, words: str
) -> None:
    """Nothing is set, what was typed stays, and the field says what is wrong."""
    form = {"unit": str(site.people.vision.id), "scope": "unit", "version": "0", "cpu": "1"}

    page = browse(site.people.alice).post("/admin/quotas/edit/", {**form, field: typed})

    assert page.status_code == 422
    assert f'id="{field}-error"' in page.content.decode()
    assert words in text_of(page)
    assert not Quota.objects.exists()


def test_second_administrator_is_told_of_the_first(site: Site, browse: Browse) -> None:
    """A form that was open while somebody else saved overwrites nothing."""
    quota = limit(site, site.people.vision, {R.GPU: 4000}, QuotaScope.EACH_USER)

    page = browse(site.people.alice).post(
        f"/admin/quotas/edit/?quota={quota.id}", {"version": "7", "gpu": "1"}
    )

    assert page.status_code == 409
    assert quotas.limits_of(Quota.objects.get()) == {R.GPU: 4000}


def test_my_work_and_the_fit_panel_show_what_counts_me(site: Site, browse: Browse) -> None:
    """Before submitting, Bob reads how much of his quotas is left."""
    limit(site, site.people.vision, {R.GPU: 4000}, QuotaScope.EACH_USER)
    limit(site, site.people.mill, {R.GPU: 1000}, QuotaScope.EACH_USER)
    client = browse(site.people.bob)
    yaml = "kind: Job\nname: a\nqueue: robots\nroles: [{name: m, command: x}]"

    home = text_of(client.get("/"))
    fit = text_of(client.post("/jobs/new/fit/", {"mode": "yaml", "yaml": yaml}))

    for words in (home, fit):
        assert "vision you" in words
        assert "of 4" in words
        assert "mill" not in words


@pytest.mark.parametrize("path", ["/", "/admin/quotas/", "/admin/secrets/"])
def test_page_costs_the_same_with_one_row_and_with_three(
    site: Site, browse: Browse, path: str
) -> None:
    """With one and with three quotas and secrets a page makes equally many queries."""
    client = browse(site.people.bob)
    limits = {R.GPU: 4000, R.STORAGE: 1, R.QUEUED_JOBS: 5}

    def cost() -> int:
        client.get(path)
        with CaptureQueriesContext(connection) as queries:
            assert client.get(path).status_code == 200
        return len(queries)

    limit(site, site.people.vision, limits, QuotaScope.EACH_USER)
    make(site, site.people.bob, site.people.vision)
    with_one = cost()
    for unit in (site.people.lab, site.people.robots):
        limit(site, unit, limits, QuotaScope.EACH_USER)
        make(site, site.people.alice, unit)

    with_three = cost()

    assert with_three == with_one
    assert with_one <= MOST


# --- secrets --------------------------------------------------------------------------------------


def make(site: Site, user: User, unit: OrgUnit, *, is_shared: bool = True) -> Secret:
    return secrets.create_secret(
        actor=load_actor(user),
        unit_id=unit.id,
        new=NewSecret("wandb", SecretKind.VARIABLES, {"API_KEY": CANARY.encode()}, is_shared),
        now=site.now,
    )


def test_form_seals_what_is_typed_and_shows_it_to_nobody(site: Site, browse: Browse) -> None:
    """The value is in no page afterwards; jobs are told how to name the secret."""
    client = browse(site.people.bob)
    form = {
        "unit": str(site.people.vision.id),
        "name": "wandb",
        "who": "shared",
        "values": f"API_KEY={CANARY}\r\nENTITY=vision",
    }

    reply = client.post("/admin/secrets/new/", form, follow=True)

    secret = Secret.objects.get()
    opened = secrets.values_for([secret], site.now)[secret.id]
    assert opened == {"API_KEY": CANARY.encode(), "ENTITY": b"vision"}
    assert "Sealed." in text_of(reply)
    for path in ("/admin/secrets/", f"/admin/secrets/{secret.id}/", "/activity/"):
        page = client.get(path)
        assert page.status_code == 200
        assert CANARY not in page.content.decode()


def test_refused_form_does_not_give_the_value_back(site: Site, browse: Browse) -> None:
    """After an error the value is to be given again; the page has nothing of it."""
    form = {"unit": str(site.people.vision.id), "name": "Not a name", "values": f"K={CANARY}"}

    page = browse(site.people.bob).post("/admin/secrets/new/", form)

    assert page.status_code == 422
    assert CANARY not in page.content.decode()
    assert "Give the values again" in text_of(page)


def test_files_and_logins_have_forms_of_their_own(site: Site, browse: Browse) -> None:
    """Uploaded files are kept by their names; a login has three fields."""
    client = browse(site.people.bob)
    common = {"unit": str(site.people.vision.id), "who": "own"}

    client.post(
        "/admin/secrets/new/?kind=files",
        {**common, "name": "ssh", "files": SimpleUploadedFile("id_rsa", b"private")},
    )
    client.post(
        "/admin/secrets/new/?kind=registry",
        {**common, "name": "reg", "registry": "r.example", "username": "u", "password": CANARY},
    )

    ssh, reg = Secret.objects.get(name="ssh"), Secret.objects.get(name="reg")
    opened = secrets.values_for([ssh, reg], site.now)
    assert opened[ssh.id] == {"id_rsa": b"private"}
    assert opened[reg.id]["password"] == CANARY.encode()
    assert not ssh.is_shared


@pytest.mark.parametrize(
    ("name", "status"), [("root", 200), ("alice", 200), ("bob", 200), ("charlie", 404)]
)
def test_who_sees_a_secret(site: Site, browse: Browse, name: str, status: int) -> None:
    """The other tenant has no such page."""
    secret = make(site, site.people.alice, site.people.lab)

    page = browse(getattr(site.people, name)).get(f"/admin/secrets/{secret.id}/")

    assert page.status_code == status


def test_who_may_only_use_a_secret_has_no_form(site: Site, browse: Browse) -> None:
    """Bob sees what Alice shared, without fields; a form that he makes up is refused."""
    secret = make(site, site.people.alice, site.people.lab)
    client = browse(site.people.bob)
    path = f"/admin/secrets/{secret.id}/"

    assert "Revoke it" not in text_of(client.get(path))
    client.post(path, {"version": "1", "action": "revoke"})
    secret.refresh_from_db()
    assert secret.revoked_at is None


def test_owner_replaces_and_revokes(site: Site, browse: Browse) -> None:
    """New values take the place of all old ones; revoking destroys them."""
    secret = make(site, site.people.bob, site.people.vision)
    client = browse(site.people.bob)
    path = f"/admin/secrets/{secret.id}/"

    client.post(path, {"version": "1", "action": "replace", "values": "OTHER=x"})
    secret.refresh_from_db()
    assert secret.keys == ["OTHER"]

    client.post(path, {"version": "2", "action": "revoke"})
    secret.refresh_from_db()
    assert bytes(secret.ciphertext) == b""
    assert "wandb" not in text_of(client.get("/admin/secrets/"))


def test_form_of_a_job_takes_secrets_and_shows_them_again(site: Site, browse: Browse) -> None:
    """A job submitted with a secret is cloned with it; its spec holds the name alone."""
    make(site, site.people.bob, site.people.vision)
    client = browse(site.people.bob)
    yaml = (
        "kind: Job\nname: with-secret\nqueue: robots\n"
        "roles: [{name: m, command: x, secrets: [KEY=wandb/API_KEY]}]"
    )

    client.post("/jobs/new/", {"mode": "yaml", "yaml": yaml})

    job = Job.objects.get(name="with-secret")
    clone = client.get(f"/jobs/{job.id}/clone/", follow=True).content.decode()
    assert "KEY=wandb/API_KEY" in clone
    assert CANARY not in clone + client.get(f"/jobs/{job.id}/spec/").content.decode()
