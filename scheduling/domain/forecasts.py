"""When waiting jobs will start: plays the coming days on the live rows and keeps what it foretold.

1. Note what came true of earlier forecasts.
2. Read the cluster, and how long the likes of the live jobs ran (`scheduling.simulator.history`).
3. Play (`scheduling.simulator.forecast`), within a budget of engine time.
4. Stretch the waits by what earlier forecasts teach (`scheduling.simulator.calibration`).
5. Write a row where there is none yet, or where the answer has moved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import starmap
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Avg, Q

from scheduling.domain.cycles import configuration_of
from scheduling.domain.queries.explain import WARM
from scheduling.engine.types import Snapshot
from scheduling.models import CycleRecord, Job, StartForecast
from scheduling.models.job import JobPhase
from scheduling.simulator.calibration import Calibration, Outcome, learn
from scheduling.simulator.forecast import FEWER_PLAYS, Forecast, RunTime, forecast
from scheduling.simulator.history import History, Ran, gpus_of, most_of_an_owner

REMEMBERED = timedelta(days=30)
"""Jobs that ended before say nothing any more."""
MOST_OWNERS = 200
LESSONS = 5000
"""Jobs of a cluster whose first forecast is learnt from; of fewer it is chance which long waits
are among them (docs/simulator.md)."""
STRETCHED = "stretched"
"""Key in a forecast's basis: by how much p50 and p90 were stretched, if they were."""
BUDGET_SECONDS = 10.0
"""Engine time that the plays of one cluster may take, by what its cycles took lately."""
FEWEST_CYCLES, ENOUGH_CYCLES, MOST_CYCLES = 10, 200, 400
"""Of one play. With less than enough of them ends are gathered so coarsely that waits become twice
as long or more (docs/simulator.md): then rather fewer plays."""
REPEATED_AFTER = timedelta(minutes=10)
MOVED = 0.2
"""A forecast is written again before that time if p50 moved by so much of the wait."""


@dataclass(frozen=True, slots=True)
class _Alike:
    """What makes run times comparable."""

    owner: str
    image: str


def make(*, cluster_id: UUID, now: datetime) -> int:
    """Foretell the starts of a cluster's waiting jobs; return how many rows were written.

    Safe to run twice: a second run finds that nothing has moved.
    """
    note_starts(cluster_id)
    if not Job.objects.filter(queue__cluster_id=cluster_id, phase=JobPhase.PENDING).exists():
        return 0
    warm = WARM.of(cluster_id)  # a large cluster is not read anew each time
    with warm.lock:
        snapshot = warm.read(cluster_id, now)
    plays, cycles = _budget(cluster_id, now)
    run_times = _run_times(snapshot, now)
    config = configuration_of(cluster_id)

    def play(sound: Snapshot) -> dict[str, Forecast]:
        return forecast(
            sound,
            run_times,
            config=config,
            plays=plays,
            most_cycles=cycles,
        )

    found = warm.ask(snapshot, config, play)
    basis = Counter(run_times[job.key].basis.value for job in snapshot.jobs if job.key in run_times)
    learnt = _learnt(cluster_id, now)
    stretched = {STRETCHED: [learnt.p50, learnt.p90]} if learnt.outcomes else {}
    return _write(
        {key: learnt.of(one, now=now.timestamp()) for key, one in found.items()},
        {"plays": plays, **basis, **stretched},
        now,
    )


def _learnt(cluster_id: UUID, now: datetime) -> Calibration:
    """Return by how much waits are to be stretched, by earlier forecasts as they were played.

    Forecasts of one hour are wrong together: so one a job, and of jobs from all over the month.
    Ids of jobs are random, so those with the highest are an even sample, found by the index.
    """
    rows = StartForecast.objects.filter(
        Q(started_at__isnull=False)
        | Q(job__phase=JobPhase.PENDING)
        | Q(job__finished_at__isnull=False),  # a suspended job does not wait
        job__queue__cluster_id=cluster_id,
        made_at__gte=now - REMEMBERED,
        p90_at__isnull=False,
    )
    first = rows.order_by("-job_id", "made_at").distinct("job_id")
    columns = ("made_at", "p50_at", "p90_at", "basis", "started_at", "job__finished_at")
    return learn(starmap(_outcome, first.values_list(*columns)[:LESSONS]), now=now.timestamp())


def _outcome(
    made_at: datetime,
    p50_at: datetime | None,
    p90_at: datetime | None,
    basis: Mapping[str, Any],  # Any: JSON
    started_at: datetime | None,
    finished_at: datetime | None,
) -> Outcome:
    p50, p90 = basis.get(STRETCHED, (1.0, 1.0))
    return Outcome(
        made_at.timestamp(),
        _unstretched(made_at, p50_at, p50),
        _unstretched(made_at, p90_at, p90),
        _seconds(started_at),
        _seconds(finished_at),
    )


def _seconds(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()


def _unstretched(made_at: datetime, at: datetime | None, factor: float) -> float | None:
    return None if at is None else made_at.timestamp() + (at - made_at).total_seconds() / factor


def note_starts(cluster_id: UUID) -> int:
    """Write into each open forecast when its job did start; return how many came true.

    A job keeps the time of its first start; of one that was evicted and waited again, the history
    tells the next.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE scheduling_startforecast AS f SET started_at = start.at
            FROM scheduling_startforecast AS o
            JOIN scheduling_job AS j ON j.id = o.job_id AND j.started_at IS NOT NULL
            JOIN scheduling_queue AS q ON q.id = j.queue_id AND q.cluster_id = %s
            CROSS JOIN LATERAL (
                SELECT CASE WHEN j.started_at >= o.made_at THEN j.started_at ELSE (
                    SELECT min(h.at) FROM scheduling_history AS h
                    WHERE h.job_id = j.id AND h.subject = 'job' AND h.to_state = %s
                      AND h.at >= o.made_at
                ) END AS at
            ) AS start
            WHERE f.id = o.id AND o.started_at IS NULL AND start.at IS NOT NULL
            """,
            [cluster_id, JobPhase.RUNNING.value],
        )
        return int(cursor.rowcount)


def _budget(cluster_id: UUID, now: datetime) -> tuple[int, int]:
    """Return how many plays of how many cycles fit into the budget, by the cycles lately."""
    lately = CycleRecord.objects.filter(
        cluster_id=cluster_id, started_at__gte=now - timedelta(minutes=10)
    )
    cost_ms = lately.aggregate(ms=Avg("plan_ms"))["ms"] or 1.0
    cycles = int(BUDGET_SECONDS * 1000 / max(cost_ms, 0.1))
    plays = next((few for few in FEWER_PLAYS if cycles >= few * ENOUGH_CYCLES), FEWER_PLAYS[-1])
    return plays, max(FEWEST_CYCLES, min(cycles // plays, MOST_CYCLES))


# --- run times ------------------------------------------------------------------------------------


def _run_times(snapshot: Snapshot, now: datetime) -> dict[str, RunTime]:
    images = _images(job.key for job in snapshot.jobs)
    history = History(_ran(sorted({job.owner for job in snapshot.jobs if job.owner}), now))
    return {
        job.key: history.run_time(
            _Alike(job.owner, images.get(job.key, "")),
            gpus=gpus_of(job),
            limit=job.time_limit_seconds,
        )
        for job in snapshot.jobs
    }


def _images(live: Iterable[str]) -> dict[str, str]:
    """Return by job the image of its first role, as its spec names it."""
    rows = Job.objects.filter(id__in=[UUID(key) for key in live]).values_list(
        "id", "spec__roles__0__image"
    )
    return {str(job_id): str(image or "") for job_id, image in rows}


def _ran(owners: Sequence[str], now: datetime) -> Iterator[Ran]:
    """Yield the newest jobs of each owner that run or have completed."""
    owners = owners[:MOST_OWNERS]
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT o.id::text, coalesce(j.image, ''), j.gpu_milli, j.seconds, j.is_over
            FROM unnest(%s::uuid[]) AS o(id) CROSS JOIN LATERAL (
                SELECT spec -> 'roles' -> 0 ->> 'image' AS image, gpu_milli, is_over,
                       extract(epoch FROM until - started_at)::float8 AS seconds
                FROM scheduling_job
                CROSS JOIN LATERAL (SELECT phase = %s AS is_over) AS a
                CROSS JOIN LATERAL (
                    SELECT CASE WHEN is_over THEN finished_at ELSE %s END AS until
                ) AS b
                WHERE owner_id = o.id AND phase IN (%s, %s) AND created_at >= %s
                  AND started_at IS NOT NULL AND until > started_at
                ORDER BY created_at DESC, id DESC LIMIT %s
            ) AS j
            """,
            [
                list(owners),
                JobPhase.COMPLETED.value,
                now,
                JobPhase.COMPLETED.value,
                JobPhase.RUNNING.value,
                now - REMEMBERED,
                most_of_an_owner(len(owners)),
            ],
        )
        for owner, image, gpus, seconds, is_over in cursor.fetchall():
            yield Ran(_Alike(owner, image), gpus, float(seconds), is_over)


# --- rows -----------------------------------------------------------------------------------------


def _write(found: Mapping[str, Forecast], basis: Mapping[str, object], now: datetime) -> int:
    newest = {
        str(row.job_id): row
        for row in StartForecast.objects.filter(job_id__in=[UUID(key) for key in found])
        .order_by("job_id", "-made_at")
        .distinct("job_id")
    }
    rows = [
        StartForecast(
            job_id=UUID(key),
            made_at=now,
            p50_at=_time(one.p50),
            p90_at=_time(one.p90),
            basis=dict(basis),
        )
        for key, one in found.items()
        if _is_news(newest.get(key), one, now)
    ]
    StartForecast.objects.bulk_create(rows, batch_size=1000)
    return len(rows)


def _is_news(last: StartForecast | None, found: Forecast, now: datetime) -> bool:
    if last is None or now - last.made_at >= REPEATED_AFTER:
        return True
    before, after = last.p50_at, _time(found.p50)
    if before is None or after is None:
        return (before is None) is not (after is None)
    return abs(after - before) > MOVED * max(after - now, timedelta(minutes=1))


def _time(at: float | None) -> datetime | None:
    return None if at is None else datetime.fromtimestamp(at, UTC)
