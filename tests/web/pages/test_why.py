"""Why a job waits: at once what the last cycle said, then what the cluster says now."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from django.test import Client
from django.utils.html import escape

from scheduling.domain import forecasts
from scheduling.domain.clock import database_now
from scheduling.domain.queries import explain
from scheduling.domain.wording import sentence
from scheduling.engine import bystanders, cycle
from scheduling.engine.session import Session
from scheduling.engine.types import Snapshot
from scheduling.models import Job, PastReason, StartForecast
from tenants.models import User
from tests.factories.demo import make_job
from tests.web.pages.conftest import Site

Browse = Callable[[User], Client]
SAID = {"min_available": 9, "ready": 0, "placeable": 8, "role": "worker"}
LATER = "Work out what would start it now"


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    """Begin and end with nothing kept of another test's database."""
    explain.WARM.forget()
    yield
    explain.WARM.forget()


@pytest.fixture
def waiting(site: Site) -> Job:
    """Bob's job asks for more than the node has, and the last cycle said so."""
    job = make_job(site.robots, site.people.bob, "large", site.now, replicas=9)
    Job.objects.filter(id=job.id).update(
        reason_code="gang_incomplete",
        reason_params=SAID,
    )
    return job


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Snapshot]:
    """Return the snapshots of which cycles were run since."""
    seen: list[Snapshot] = []
    opened = cycle.open_session

    def counted(snapshot: Snapshot, *args: object, **kwargs: object) -> Session:
        seen.append(snapshot)
        return opened(snapshot, *args, **kwargs)  # type: ignore[arg-type]  # passed through

    for module in (cycle, bystanders):
        monkeypatch.setattr(module, "open_session", counted)
    return seen


@pytest.fixture
def poison(site: Site, monkeypatch: pytest.MonkeyPatch) -> Job:
    """Charlie's job makes every cycle raise that sees it."""
    opened = cycle.open_session
    key = str(site.charlies.id)

    def failing(snapshot: Snapshot, *args: object, **kwargs: object) -> Session:
        if any(job.key == key for job in snapshot.jobs):
            raise KeyError("a bug")
        return opened(snapshot, *args, **kwargs)  # type: ignore[arg-type]  # passed through

    for module in (cycle, bystanders):
        monkeypatch.setattr(module, "open_session", failing)
    return site.charlies


def states(client: Client, path: str) -> dict[str, str]:
    """Return the rungs of a page by name."""
    ladder = client.get(path).context["ladder"]
    return {rung.name: str(rung.state) for rung in ladder.rungs}


def test_page_repeats_the_last_cycle_and_runs_none(
    site: Site, browse: Browse, waiting: Job, runs: list[Snapshot]
) -> None:
    """The rung that failed and its words are there at once; the rest is asked for after it."""
    client = browse(site.people.bob)

    page = client.get(f"/jobs/{waiting.id}/why/")

    assert runs == []
    assert states(client, f"/jobs/{waiting.id}/why/")["gang"] == "failed"
    text = page.content.decode()
    assert f'hx-get="/jobs/{waiting.id}/why/now/"' in text
    assert LATER in text
    assert escape(sentence("gang_incomplete", SAID)) in text


def test_part_plans_the_cluster_as_it_is_now(site: Site, browse: Browse, waiting: Job) -> None:
    """Every rung has its numbers, and what would start the job is named; without a frame."""
    client = browse(site.people.bob)

    part = client.get(f"/jobs/{waiting.id}/why/now/", headers={"HX-Request": "true"})
    whole = client.get(f"/jobs/{waiting.id}/why/now/")

    text = part.content.decode()
    assert "<html" not in text
    assert "<html" in whole.content.decode()
    assert LATER not in text
    assert "1 node" in text
    kinds = [one.code for one in part.context["changes"]]
    assert kinds == ["change_lower_min"]


def test_gang_larger_than_the_cluster_is_told_so(site: Site, browse: Browse, waiting: Job) -> None:
    """Waiting would not help it, which both the job's page and its copy's form say."""
    client = browse(site.people.bob)
    role = {"name": "worker", "replicas": 9, "gpu": 2, "command": ["run"]}
    asked = json.dumps({"name": "copy", "queue": "robots", "roles": [role]})

    why = client.get(f"/jobs/{waiting.id}/why/now/").content.decode()
    fit = client.post("/jobs/new/fit/", {"mode": "yaml", "yaml": asked}).content.decode()
    less = asked.replace('"replicas": 9', '"replicas": 4')
    smaller = client.post("/jobs/new/fit/", {"mode": "yaml", "yaml": less}).content.decode()

    told = "the nodes that there are would hold %d of 9 tasks"
    assert told % 8 in why
    assert told % 4 in fit
    assert "Would wait" in smaller
    assert "Waiting does not help" not in smaller


def test_answer_is_given_again_until_something_changes(
    site: Site, browse: Browse, waiting: Job, runs: list[Snapshot]
) -> None:
    """Asked twice the cluster is planned once; a job that came meanwhile makes it planned anew."""
    client = browse(site.people.bob)
    path = f"/jobs/{waiting.id}/why/now/"

    client.get(path)
    first = len(runs)
    # What a test's transaction wrote looks new for as long as it is open, but is the same.
    client.get(path)
    again = len(runs)
    make_job(site.robots, site.people.bob, "another", site.now)
    client.get(path)

    assert first > 0
    assert again == first
    assert len(runs) > again


def test_a_single_task_is_no_gang(site: Site, browse: Browse) -> None:
    """Where one task fits nowhere, the rung of the gang does not count it."""
    job = make_job(site.robots, site.people.bob, "wide", site.now, replicas=1, gpu_milli=99_000)
    Job.objects.filter(id=job.id).update(reason_code="nodes_unfit", reason_params=SAID)
    client = browse(site.people.bob)

    text = client.get(f"/jobs/{job.id}/why/now/").content.decode()

    assert "The gang can start together" in text
    assert "must start together have a place" not in text


def test_what_it_waited_for_until_now_stands_below(
    site: Site, browse: Browse, waiting: Job
) -> None:
    """Each reason of the past with its time, on pages; the timeline draws the newest."""
    for hours in range(60):
        at = site.now - timedelta(hours=hours)
        PastReason.objects.create(
            job=waiting, minute=at, at=at, code="gang_incomplete", params=SAID | {"ready": hours}
        )
    client = browse(site.people.bob)

    first = client.get(f"/jobs/{waiting.id}/why/")
    assert first.context["more"] is not None
    address = re.search(r'href="([^"]+before=[^"]+)"', first.content.decode())
    assert address is not None
    second = client.get(address[1])
    shown = [one.params["ready"] for page in (first, second) for one in page.context["waits"]]

    assert shown == list(range(60))
    assert [one.seconds for one in first.context["waits"][:2]] == [None, 3600.0]
    assert second.context["waits"][0].seconds == 3600.0
    assert client.get(f"/jobs/{waiting.id}/why/?before=nonsense").status_code == 200
    chart = client.get(f"/jobs/{waiting.id}/timeline/").context["chart"]
    assert escape(sentence("gang_incomplete", SAID)) in map(escape, chart.data[0]["text"])


def test_job_that_no_cycle_has_seen_says_so(site: Site, browse: Browse) -> None:
    """Without a reason there is nothing to repeat, and nothing is asked for yet."""
    text = browse(site.people.bob).get(f"/jobs/{site.bobs.id}/why/").content.decode()

    assert "No cycle has looked at it yet" in text


def test_job_that_is_set_aside_says_why(site: Site, browse: Browse) -> None:
    """What is no cycle's reason has its sentence instead of the ladder."""
    Job.objects.filter(id=site.bobs.id).update(
        reason_code="quarantined",
        reason_params={"error": "KeyError", "strikes": 3, "most": 3},
        quarantine_strikes=3,
    )
    client = browse(site.people.bob)

    for path in ("why/", "why/now/"):
        text = client.get(f"/jobs/{site.bobs.id}/{path}").content.decode()
        assert "It does not wait" not in text
        assert "Planning failed" in text


def test_why_is_answered_beside_a_job_that_breaks_planning(
    site: Site, browse: Browse, waiting: Job, poison: Job
) -> None:
    """The others are planned without it, as the scheduler does; of it the last cycle speaks."""
    kept = browse(site.people.bob).get(f"/jobs/{waiting.id}/why/now/")
    again = browse(site.people.bob).get(f"/jobs/{waiting.id}/why/now/")
    own = browse(site.people.charlie).get(f"/jobs/{poison.id}/why/now/")

    assert [one.code for one in kept.context["changes"]] == ["change_lower_min"]
    assert again.context["changes"] == kept.context["changes"]
    assert (own.status_code, own.context["ladder"].rungs) == (200, ())


def test_fit_is_answered_beside_a_job_that_breaks_planning(
    site: Site, browse: Browse, poison: Job
) -> None:
    """A form says whether its job would fit, whatever another does to planning."""
    document = {
        "name": "one",
        "queue": "robots",
        "roles": [{"name": "worker", "command": ["true"], "cpu": "1", "memory": "1Gi"}],
    }

    reply = browse(site.people.bob).post(
        "/api/v1/jobs?dry_run=1", document, content_type="application/json"
    )

    assert reply.status_code == 200
    assert poison.phase == "Pending"


def test_forecasts_are_made_beside_a_job_that_breaks_planning(site: Site, poison: Job) -> None:
    """A job that cannot be planned gets no forecast, the others do."""
    forecasts.make(cluster_id=site.cluster.id, now=database_now())

    told = set(StartForecast.objects.values_list("job_id", flat=True))
    assert told == {site.bobs.id}
    assert poison.id not in told
