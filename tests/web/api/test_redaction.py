"""Reasons tell everybody the amounts, and whose they are only to those who may read them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import AnonymousUser
from django.template.loader import render_to_string
from django.test import Client
from django.utils import timezone

from controlplane.pages.fragments import FRAGMENTS
from scheduling.domain.queries import explain
from scheduling.domain.queries.redaction import redacted
from scheduling.models import History, Job, PastReason, Reservation, Task
from scheduling.spec.job_spec import JobSpec
from scheduling.spec.parse import Format, parse
from tenants.domain.access import load_actor
from tenants.models import User
from tests.factories.demo import make_job, run_task
from tests.web.api.conftest import As, Site

NAME = "charlies-secret"


@pytest.fixture
def behind(site: Site) -> Site:
    """Bob's job, its first task, its history and its past say that they wait for Charlie's."""
    params = {"queue": "mill", "job": str(site.charlies.id), "jobs": [str(site.charlies.id)]}
    reason = {"reason_code": "behind_head", "reason_params": params}
    Job.objects.filter(id=site.bobs.id).update(**reason)
    Task.objects.filter(job=site.bobs).update(**reason)
    History.objects.create(
        job=site.bobs,
        seq=1000,
        subject="job",
        event="waiting",
        to_state="Pending",
        at=timezone.now(),
        reason_code="evicted_for",
        params=params,
    )
    began = timezone.now() - timedelta(hours=2)
    PastReason.objects.create(
        job=site.bobs, minute=began, at=began, code="behind_head", params=params
    )
    return site


@pytest.fixture
def reserved(site: Site) -> Site:
    """Charlie's job is too large for the cluster, and the whole node is kept for it."""
    large = make_job(site.mill, site.people.charlie, f"{NAME}-large", timezone.now(), replicas=4)
    Reservation.objects.create(
        job=large,
        amounts_by_node={"gpu-01": dict(site.node.allocatable)},
        reason="sla",
        created_at=timezone.now(),
        expires_at=timezone.now() + timedelta(hours=1),
    )
    site.charlies.delete()
    explain.WARM.forget()
    return Site(
        site.people,
        site.cluster,
        site.vision,
        site.robots,
        site.mill,
        site.node,
        site.bobs,
        large,
    )


def leaks(site: Site, text: str) -> list[str]:
    """Return what a text tells of Charlie's."""
    secrets = (str(site.charlies.id), NAME, "mill")
    return [one for one in secrets if re.search(rf"\b{one}\b", text)]


ADDRESSES = (
    "/api/v1/jobs",
    "/api/v1/jobs/{id}",
    "/api/v1/jobs/{id}/tasks",
    "/api/v1/jobs/{id}/history",
    "/api/v1/jobs/{id}/waits",
)


@pytest.mark.parametrize("address", ADDRESSES)
def test_api_names_no_job_of_another_tenant(behind: Site, as_user: As, address: str) -> None:
    """Bob reads that another job is before his, Root which one; both by every list of the API."""
    path = address.format(id=behind.bobs.id)

    bobs = as_user(behind.people.bob).get(path).content.decode()
    roots = as_user(behind.people.root).get(path).content.decode()

    assert leaks(behind, bobs) == []
    assert "nother job" in bobs
    assert leaks(behind, roots) == [str(behind.charlies.id), NAME, "mill"]


PAGES = (
    "/jobs/",
    "/jobs/{id}/",
    "/jobs/{id}/why/",
    "/jobs/{id}/tasks/",
    "/jobs/{id}/timeline/",
    "/jobs/{id}/tasks/worker/0/",
)


@pytest.mark.parametrize("address", [*PAGES, "/jobs/{id}/events/", "/"])
def test_pages_name_no_job_of_another_tenant(behind: Site, address: str) -> None:
    """No page of Bob's tells of Charlie's job."""
    client = Client()
    client.force_login(behind.people.bob)

    text = client.get(address.format(id=behind.bobs.id)).content.decode()

    assert leaks(behind, text) == []


@pytest.mark.parametrize("address", [*PAGES, "/jobs/{id}/events/"])
def test_pages_name_the_job_to_whom_may_read_it(behind: Site, address: str) -> None:
    """Root's pages name the job that Bob's waits for."""
    client = Client()
    client.force_login(behind.people.root)

    assert NAME in client.get(address.format(id=behind.bobs.id)).content.decode()


@pytest.mark.parametrize("name", ["job_row", "job_header", "job_tasks", "job_history", "my_jobs"])
def test_live_fragments_name_no_job_of_another_tenant(behind: Site, name: str) -> None:
    """What is sent over the socket tells Bob no more than the page did."""
    bob = behind.people.bob
    object_id = str(bob.id if name == "my_jobs" else behind.bobs.id)

    html = _rendered(bob, name, object_id)

    assert html.strip()
    assert leaks(behind, html) == []


def test_live_fragment_names_the_job_to_root(behind: Site) -> None:
    """Root's row of Bob's job names Charlie's."""
    html = _rendered(behind.people.root, "job_row", str(behind.bobs.id))

    assert NAME in html


def _rendered(user: User, name: str, object_id: str) -> str:
    assert not isinstance(user, AnonymousUser)
    actor, fragment = load_actor(user), FRAGMENTS[name]
    context = fragment.load(actor, object_id, "")
    return render_to_string(fragment.template, {"actor": actor, **context})


def _headline(document: dict[str, Any]) -> dict[str, Any]:
    headline: dict[str, Any] = document["headline"]
    return headline


def test_explain_counts_jobs_of_others_without_naming_them(reserved: Site, as_user: As) -> None:
    """The ladder tells Bob for how many jobs room is kept, and Root for which."""
    path = f"/api/v1/jobs/{reserved.bobs.id}/explain"

    bobs = as_user(reserved.people.bob).get(path).json()
    roots = as_user(reserved.people.root).get(path).json()

    assert _headline(bobs)["code"] == "room_reserved"
    assert (_headline(bobs)["params"]["jobs"], _headline(bobs)["params"]["jobs_total"]) == ([], 1)
    assert "jobs that waited too long (1" in _headline(bobs)["message"]
    assert leaks(reserved, json.dumps(bobs)) == []
    assert _headline(roots)["params"]["jobs"] == [str(reserved.charlies.id)]


def test_explain_names_what_would_start_a_job(reserved: Site, as_user: As) -> None:
    """Each change has a code and words, and names nobody whom Bob does not see."""
    path = f"/api/v1/jobs/{reserved.bobs.id}/explain"

    bobs = as_user(reserved.people.bob).get(path).json()

    assert all(one["message"] != one["code"] for one in bobs["changes"])
    assert {one["code"].partition("_")[0] for one in bobs["changes"]} <= {"change"}
    assert leaks(reserved, json.dumps(bobs["changes"])) == []


def test_explain_names_no_job_to_wait_for_to_others(site: Site, as_user: As) -> None:
    """Where only the end of Charlie's job would help, Bob reads of one job and Root which it is."""
    now = timezone.now()
    running = make_job(site.mill, site.people.charlie, f"{NAME}-runs", now, phase="Running")
    for task, device in zip(running.tasks.order_by("index"), site.node.devices.all(), strict=True):
        run_task(task, site.node, site.mill, [device], now)
    site.charlies.delete()
    explain.WARM.forget()
    path = f"/api/v1/jobs/{site.bobs.id}/explain"

    changes = {
        user.username: as_user(user).get(path).json()["changes"]
        for user in (site.people.bob, site.people.root)
    }

    waits = {
        name: [one["params"]["jobs"] for one in told if one["code"] == "change_wait_for"]
        for name, told in changes.items()
    }
    assert waits == {"bob": [[]], "root": [[str(running.id)]]}
    assert leaks(replace(site, charlies=running), json.dumps(changes["bob"])) == []


def test_fit_is_told_of_queues_that_one_sees(site: Site, document: dict[str, object]) -> None:
    """Charlie's queue is none to Bob, even where nothing before asked whether he sees it."""
    spec = parse({**document, "queue": "mill"}, form=Format.JSON)
    assert isinstance(spec, JobSpec)

    told = [
        explain.fit(load_actor(user), spec, now=timezone.now())
        for user in (site.people.bob, site.people.charlie)
    ]

    assert [fit is not None for fit in told] == [False, True]


def test_why_page_names_no_job_of_another_tenant(reserved: Site) -> None:
    """The page of the ladder tells Bob the same as the API."""
    client = Client()
    client.force_login(reserved.people.bob)

    text = client.get(f"/jobs/{reserved.bobs.id}/why/now/").content.decode()

    assert "jobs that waited too long (1" in text
    assert leaks(reserved, text) == []


def test_dry_run_names_no_job_of_another_tenant(
    reserved: Site, as_user: As, document: dict[str, object]
) -> None:
    """Asking whether a job would fit tells nobody whose jobs are in the way, but Root."""
    roles: Any = document["roles"]
    roles[0]["gpu"] = 1
    path = "/api/v1/jobs?dry_run=1"

    bobs = as_user(reserved.people.bob).post(path, document, format="json").json()
    roots = as_user(reserved.people.root).post(path, document, format="json").json()

    assert _headline(bobs["fit"])["code"] == "room_reserved"
    assert leaks(reserved, json.dumps(bobs)) == []
    assert _headline(roots["fit"])["params"]["jobs"] == [str(reserved.charlies.id)]


def test_names_cost_one_query_for_a_page(
    site: Site,
    django_assert_num_queries: Any,  # Any: pytest-django's context manager
) -> None:
    """However many reasons, jobs are asked for once and queues once."""
    bob = load_actor(site.people.bob)
    many = [
        {"job": str(job_id), "queue": queue}
        for job_id in (site.bobs.id, site.charlies.id, UUID(int=1), "no id")
        for queue in ("mill", "vision", "root", "robots")
    ]

    with django_assert_num_queries(2):
        shown = redacted(bob, many, own_queues=("robots",))
    with django_assert_num_queries(0):
        redacted(bob, [{"queue": "robots", "resource": "cpu"}], own_queues=("robots",))

    assert [one["queue"] for one in shown[:4]] == [None, "vision", "root", "robots"]
    assert {one["job"] for one in shown} == {str(site.bobs.id), None}


def test_fault_of_the_scheduler_is_told_in_full_to_administrators_only(site: Site) -> None:
    """The text of a fault may name anything; Bob reads its kind."""
    params = [{"error": f"KeyError: {NAME}", "strikes": 3}]
    people = site.people

    shown = [redacted(load_actor(one), params, own_queues=()) for one in (people.bob, people.root)]

    assert [one[0]["error"] for one in shown] == ["KeyError", f"KeyError: {NAME}"]
