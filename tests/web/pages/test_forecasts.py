"""When a job will start: on its page, under Why, and in the API."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from django.test import Client

from controlplane.templatetags.terrace_forecast import about
from scheduling.domain.clock import database_now
from scheduling.models import Job, StartForecast
from scheduling.models.job import JobPhase
from tenants.models import User
from tests.factories.demo import make_job
from tests.web.pages.conftest import Site

Browse = Callable[[User], Client]


def waiting_with_forecast(site: Site, *, minutes: tuple[int | None, int | None]) -> Job:
    """Write a waiting job of Bob's and what was just foretold of it."""
    job = make_job(site.bobs.queue, site.people.bob, "waits", database_now())
    assert job.phase == JobPhase.PENDING
    at = database_now()
    p50, p90 = (None if m is None else at + timedelta(minutes=m) for m in minutes)
    StartForecast.objects.create(
        job=job,
        made_at=at,
        p50_at=p50,
        p90_at=p90,
        basis={"plays": 11, "history": 3, "limit": 1, "size": 2},
    )
    return job


def test_the_page_says_when_it_starts(site: Site, browse: Browse) -> None:
    """The sentence above the tabs has the range, Why has what it goes by."""
    job = waiting_with_forecast(site, minutes=(10, 40))
    row = StartForecast.objects.get(job=job)
    assert row.p50_at
    assert row.p90_at
    words = f"It starts about {about(row.p50_at)} to {about(row.p90_at)}."
    client = browse(site.people.bob)

    overview = client.get(f"/jobs/{job.id}/").content.decode()
    why = client.get(f"/jobs/{job.id}/why/").content.decode()

    assert words in overview
    assert words in why
    assert "3 jobs by what their owners&#x27; earlier jobs took. 1 job by its time limit." in why
    assert "2 jobs by what others of as many GPUs took." in why
    assert "0 forecasts have come due so far, which is too few" in why


def test_without_a_time_the_page_says_so_and_shows_no_number(site: Site, browse: Browse) -> None:
    """Unknown is said in words; the sentence above the tabs stays as it is."""
    job = waiting_with_forecast(site, minutes=(None, None))
    client = browse(site.people.bob)

    assert "When it starts cannot be told." in client.get(f"/jobs/{job.id}/why/").content.decode()
    assert "starts" not in client.get(f"/jobs/{job.id}/").context["status"]


def test_the_api_gives_the_range(site: Site, browse: Browse) -> None:
    """p50 and p90 with the counts behind them; null for a job that does not wait."""
    job = waiting_with_forecast(site, minutes=(10, None))
    client = browse(site.people.bob)

    found = client.get(f"/api/v1/jobs/{job.id}").json()["forecast"]

    assert found["p90_at"] is None
    assert found["p50_at"] is not None
    assert found["basis"] == {"plays": 11, "history": 3, "limit": 1, "size": 2}
    Job.objects.filter(id=job.id).update(phase=JobPhase.RUNNING)
    assert client.get(f"/api/v1/jobs/{job.id}").json()["forecast"] is None


def started_between(site: Site) -> StartForecast:
    """Write a forecast of Bob's job, which started between its two times."""
    job = waiting_with_forecast(site, minutes=(-20, -5))
    row = StartForecast.objects.get(job=job)
    started_at = row.made_at - timedelta(minutes=10)
    StartForecast.objects.update(made_at=row.made_at - timedelta(minutes=30), started_at=started_at)
    Job.objects.filter(id=job.id).update(phase=JobPhase.RUNNING, started_at=started_at)
    return row


def test_who_started_is_shown_beside_what_was_told(site: Site, browse: Browse) -> None:
    """Operations lists the first range told of a job, and how often such ranges came true."""
    row = started_between(site)
    client = browse(site.people.bob)

    page = client.get("/ops/starts/").content.decode()

    assert row.p50_at
    assert row.p90_at
    assert f"{about(row.p50_at)} to {about(row.p90_at)}: as told" in page
    assert "1 forecast has come due so far, which is too few" in page
    told = StartForecast.objects.get()
    for minutes in range(1, 20):
        told.pk, told.made_at = None, told.made_at - timedelta(minutes=minutes)
        told.save()
    page = client.get("/ops/starts/").content.decode()
    assert "0 % came true by the first time (meant: 50 %) and 100 % by the second" in page


def test_calibration_counts_the_jobs_that_its_reader_may_see(site: Site, browse: Browse) -> None:
    """Bob's job started between its two times; Charlie, of another tenant, sees none."""
    started_between(site)
    path = f"/api/v1/clusters/{site.cluster.id}/forecasts"

    told = [browse(who).get(path).json() for who in (site.people.bob, site.people.charlie)]

    assert told == [{"count": 1, "by_p50": 0, "by_p90": 1}, {"count": 0, "by_p50": 0, "by_p90": 0}]


def test_who_waits_beyond_both_times_counts_as_missed(site: Site, browse: Browse) -> None:
    """A forecast that is over counts though its job has not started, else only hits would."""
    waiting_with_forecast(site, minutes=(-20, -5))

    told = browse(site.people.bob).get(f"/api/v1/clusters/{site.cluster.id}/forecasts").json()

    assert told == {"count": 1, "by_p50": 0, "by_p90": 0}
