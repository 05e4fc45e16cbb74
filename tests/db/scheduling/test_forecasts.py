"""Forecasts of starts on the live rows, and what came true of them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from scheduling.domain import forecasts
from scheduling.domain.queries import forecasts as queries
from scheduling.models import ImageRule, Job, StartForecast
from tenants.models import User
from tests.factories.cluster import Site, fresh, make_site, role
from tests.factories.demo import make_job

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def site() -> Site:
    return make_site()


def after_history(site: Site, *, seconds: tuple[int, ...] = (300, 300, 300)) -> None:
    """Let like jobs of the administrator run on the one node and end after their time."""
    for each in seconds:
        ended = site.started(role(cpu_milli=8000))
        site.later(each)
        site.exited(*site.live(ended))


def foretell(site: Site) -> int:
    return forecasts.make(cluster_id=site.cluster.id, now=site.now)


def whole_node(site: Site) -> tuple[Job, Job]:
    """Let one job run on all of the node, and another wait for it."""
    running = site.started(role(cpu_milli=14_000))
    site.later(100)
    waiting = site.submit(role(cpu_milli=14_000))
    site.cycle()
    return running, waiting


def test_a_waiting_job_is_told_when_by_what_like_jobs_took(site: Site) -> None:
    """Like jobs took 300 s, 100 s of which are over: it starts in 200 s."""
    site.node()
    after_history(site)
    _, waiting = whole_node(site)

    written = foretell(site)

    row = StartForecast.objects.get(job=waiting)
    assert written == 1
    assert row.p50_at is not None
    assert abs(row.p50_at - site.now - timedelta(seconds=200)) <= timedelta(seconds=10)
    assert row.basis == {"plays": 11, "history": 2}
    assert queries.newest(fresh(waiting), now=site.now) == row


def test_a_time_limit_serves_where_there_is_no_history(site: Site) -> None:
    """The running job ends at its limit at the latest."""
    site.node()
    site.started(role(cpu_milli=14_000), time_limit_seconds=600)
    waiting = site.submit(role(cpu_milli=14_000))
    site.cycle()

    foretell(site)

    row = StartForecast.objects.get(job=waiting)
    assert row.p90_at is not None
    assert abs(row.p90_at - site.now - timedelta(seconds=600)) <= timedelta(seconds=10)
    assert row.basis == {"plays": 11, "limit": 1, "unknown": 1}


def test_jobs_that_run_on_make_their_like_longer(site: Site) -> None:
    """Three took 60 s, but five that began with them run on for an hour: even odds are late."""
    site.node()
    others = [site.started(role(cpu_milli=1000)) for _ in range(5)]
    after_history(site, seconds=(60, 60, 60))
    site.later(3600)
    running = site.started(role(cpu_milli=10_000))
    waiting = site.submit(role(cpu_milli=10_000))
    site.cycle()

    foretell(site)

    row = StartForecast.objects.get(job=waiting)
    assert {fresh(job).phase for job in (*others, running)} == {"Running"}
    assert row.p50_at is not None
    assert row.p50_at - site.now >= timedelta(hours=1)
    assert row.basis == {"plays": 11, "history": 7}


def test_a_stranger_is_guessed_by_jobs_of_as_many_gpus(site: Site) -> None:
    """Without history of its own image it is taken to run as others that ask for as much."""
    site.node()
    after_history(site)
    ImageRule.objects.create(cluster=site.cluster, position=1, pattern="another*", runtime="host")
    site.started(role(cpu_milli=14_000, image="another:1"))
    waiting = site.submit(role(cpu_milli=14_000))
    site.cycle()

    foretell(site)

    row = StartForecast.objects.get(job=waiting)
    assert row.basis == {"plays": 11, "size": 1, "history": 1}
    assert row.p50_at is not None
    assert abs(row.p50_at - site.now - timedelta(seconds=300)) <= timedelta(seconds=10)


def test_nothing_is_said_where_nothing_is_known(site: Site) -> None:
    """Without history and limits there is a row, and no time in it."""
    site.node()
    _, waiting = whole_node(site)

    foretell(site)

    row = StartForecast.objects.get(job=waiting)
    assert (row.p50_at, row.p90_at) == (None, None)


def test_a_second_run_writes_only_what_has_moved(site: Site) -> None:
    """The same answer is not written again for ten minutes; another one is, at once."""
    site.node()
    after_history(site)
    running, _ = whole_node(site)
    foretell(site)

    assert foretell(site) == 0
    site.exited(*site.live(running))
    assert foretell(site) == 1
    site.later(601)
    assert foretell(site) == 1


def test_what_came_true_is_kept_beside_the_forecast(site: Site) -> None:
    """The start is written into the forecasts of before, and counted against p50 and p90."""
    site.node()
    after_history(site)
    running, waiting = whole_node(site)
    foretell(site)
    site.later(150)
    site.exited(*site.live(running))
    site.cycle()
    site.running(*site.live(waiting))

    foretell(site)

    row = StartForecast.objects.get(job=waiting)
    assert row.started_at == fresh(waiting).started_at
    at = site.later(100)
    found = queries.calibration(site.cluster.id, since=at - timedelta(days=1), now=at)
    assert found == queries.Calibration(1, 1, 1)
    assert queries.newest(fresh(waiting), now=site.now) is None


def test_the_start_after_an_eviction_is_what_came_true(site: Site) -> None:
    """A forecast made of a job that ran before is closed by its next start, not by its first."""
    site.node()
    waiting = site.submit(role(cpu_milli=14_000))
    Job.objects.filter(id=waiting.id).update(started_at=site.now - timedelta(hours=2))
    row = StartForecast.objects.create(job=waiting, made_at=site.now, p50_at=site.now)
    before = forecasts.note_starts(site.cluster.id)
    site.later(60)
    site.cycle()
    site.running(*site.live(waiting))

    after = forecasts.note_starts(site.cluster.id)

    row.refresh_from_db()
    assert (before, after, row.started_at) == (0, 1, site.now)


def test_a_stale_forecast_is_not_shown(site: Site) -> None:
    """What was said 20 minutes ago and not since is withheld where the reader gives the time."""
    site.node()
    after_history(site)
    _, waiting = whole_node(site)
    foretell(site)

    assert queries.newest(fresh(waiting), now=site.now + timedelta(minutes=14)) is not None
    assert queries.newest(fresh(waiting), now=site.now + timedelta(minutes=20)) is None


def test_a_cluster_without_waiting_jobs_costs_nothing(site: Site) -> None:
    """Nothing waits: no row, no plays."""
    site.node()
    site.started()

    assert foretell(site) == 0


@pytest.mark.parametrize(("plan_ms", "plays"), [(1.0, 11), (5.0, 7), (10.0, 5), (100.0, 3)])
def test_dear_cycles_are_spared_on_plays_first(site: Site, plan_ms: float, plays: int) -> None:
    """Within the budget a play keeps its 200 cycles as long as three plays are left."""
    site.node()
    whole_node(site)
    times = {"snapshot_ms": 0.0, "plan_ms": plan_ms, "apply_ms": 0.0}
    site.cluster.cycles.create(number=1, epoch=1, started_at=site.now, **times)

    foretell(site)

    assert StartForecast.objects.get().basis["plays"] == plays


def came_true(site: Site, *, told: float, waited: float, repeated: int = 1) -> None:
    """Write an ended job for which a start was foretold, and when it did start."""
    made_at = site.now - timedelta(hours=1)
    owner = User.objects.get(username="operator")
    job = make_job(site.queue, owner, "ended", made_at, phase="Completed")
    StartForecast.objects.bulk_create(
        StartForecast(
            job=job,
            made_at=made_at + timedelta(seconds=again),
            p50_at=made_at + timedelta(seconds=told),
            p90_at=made_at + timedelta(seconds=told),
            basis={forecasts.STRETCHED: [2.0, 1.0]},
            started_at=made_at + timedelta(seconds=waited),
        )
        for again in range(repeated)
    )


def test_waits_are_stretched_by_what_became_of_earlier_forecasts(site: Site) -> None:
    """Twenty jobs waited twice as long as foretold: the next one is told twice the time."""
    site.node()
    after_history(site)
    _, waiting = whole_node(site)
    for _ in range(20):
        came_true(site, told=60, waited=60)

    foretell(site)

    row = StartForecast.objects.get(job=waiting)
    assert row.p50_at is not None
    assert row.basis[forecasts.STRETCHED] == [2.0, 1.0]
    assert abs(row.p50_at - site.now - timedelta(seconds=400)) <= timedelta(seconds=20)


def test_of_each_job_the_first_forecast_is_learnt_from(site: Site) -> None:
    """One job that was told the time a hundred times, each time wrongly, teaches once."""
    site.node()
    after_history(site)
    _, waiting = whole_node(site)
    for _ in range(20):
        came_true(site, told=60, waited=60)
    came_true(site, told=120, waited=3600, repeated=100)

    foretell(site)

    assert StartForecast.objects.get(job=waiting).basis[forecasts.STRETCHED] == [2.0, 1.0]
