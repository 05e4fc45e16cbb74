"""When what waits will start, by playing the days that may come."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

from hypothesis import given
from hypothesis import strategies as st

from scheduling.engine.types import CPU, GPU, PODS, Job, Node, Queue, Snapshot, Task, TaskState
from scheduling.simulator.forecast import (
    PLAYS,
    Basis,
    RunTime,
    forecast,
    quantile_of,
    remaining,
)
from scheduling.simulator.survival import Survival
from scheduling.simulator.trace import gang

NOW = 10_000.0
NODE = Node("n", {CPU: 64_000, GPU: 8000, PODS: 110_000})


def job(name: str, *, gpus: int = 8, created: float = NOW) -> Job:
    request = {CPU: 1000, GPU: gpus * 1000, PODS: 1000}
    return gang(name, queue="q", request=request, tasks=1, arrives_at=created)


def running(name: str, *, since: float) -> Job:
    waiting = job(name, created=since)
    task = replace(waiting.tasks[0], state=TaskState.RUNNING, node="n", started_at=since)
    return replace(waiting, tasks=(task,))


def snapshot(*jobs: Job) -> Snapshot:
    return Snapshot(NOW, (NODE,), (Queue("q"),), jobs)


def known(*seconds: float) -> RunTime:
    return RunTime(Survival.of(seconds), Basis.HISTORY)


def test_a_job_waits_for_the_end_of_what_runs() -> None:
    """With run times that are all alike, p50 and p90 are the end of the job before."""
    found = forecast(
        snapshot(running("old", since=NOW - 100), job("new")), {"old": known(400), "new": known(1)}
    )

    assert set(found) == {"new"}
    assert (found["new"].p50, found["new"].p90) == (NOW + 300, NOW + 300)
    assert not found["new"].is_cut


def test_uncertain_run_times_widen_the_range() -> None:
    """If like jobs took 200 to 1,100 s, half of the plays are over by the middle of it."""
    run_times = {"old": known(*range(200, 1101, 100)), "new": known(1)}

    found = forecast(snapshot(running("old", since=NOW - 100), job("new")), run_times)["new"]

    assert found.p50 is not None
    assert found.p90 is not None
    assert NOW + 450 <= found.p50 <= NOW + 650
    assert NOW + 850 <= found.p90 <= NOW + 1005


def test_jobs_wait_behind_one_another() -> None:
    """The third in line starts when the second has run."""
    jobs = [running("a", since=NOW), job("b", created=NOW - 2), job("c", created=NOW - 1)]
    run_times = {"a": known(100), "b": known(50), "c": known(1)}

    found = forecast(snapshot(*jobs), run_times)

    assert found["b"].p50 == NOW + 100
    assert found["c"].p50 is not None
    assert NOW + 150 <= found["c"].p50 <= NOW + 152


def queue_behind_a_long_job() -> tuple[Snapshot, dict[str, RunTime]]:
    """Let one GPU be held for ages, and 70 jobs of 50 s wait for the other seven."""
    jobs = [job(f"short-{i:02}", gpus=1, created=NOW + i / 100 - 1) for i in range(70)]
    run_times = {each.key: known(50) for each in jobs} | {"long": known(100_000)}
    long = job("long", gpus=1, created=NOW - 10)
    task = replace(long.tasks[0], state=TaskState.RUNNING, node="n", started_at=NOW - 10)
    return snapshot(replace(long, tasks=(task,)), *jobs), run_times


def test_short_jobs_follow_one_another_at_once_whatever_else_runs_long() -> None:
    """A job that runs for a day does not make the steps of the play coarse."""
    state, run_times = queue_behind_a_long_job()

    found = forecast(state, run_times)

    assert [found[f"short-{i:02}"].p50 for i in range(70)] == [NOW + i // 7 * 50 for i in range(70)]


def test_with_fewer_cycles_than_ends_no_time_is_lost_on_the_whole() -> None:
    """Uneven ends are seen several at once, at their mean: the last start is right to a tenth."""
    state, run_times = queue_behind_a_long_job()
    run_times |= {f"short-{i:02}": known(40 + i * 37 % 21) for i in range(70)}
    exact = forecast(state, run_times)["short-69"].p50
    few = forecast(state, run_times, most_cycles=40)["short-69"].p50

    assert exact is not None
    assert few is not None
    assert abs(few - exact) <= 0.1 * (exact - NOW)


def test_without_any_knowledge_there_is_no_time() -> None:
    """A job of which nothing is known may run for ever: the forecast says so, and not a number."""
    found = forecast(snapshot(running("old", since=NOW), job("new")), {})["new"]

    assert (found.p50, found.p90, found.is_cut) == (None, None, True)


def test_a_time_limit_bounds_what_is_not_known() -> None:
    """Its own limit says when it is over at the latest."""
    old = replace(running("old", since=NOW - 100), time_limit_seconds=160)

    found = forecast(snapshot(old, job("new")), {})["new"]

    assert found.p90 == NOW + 60


def test_what_never_fits_has_no_time() -> None:
    """More GPUs than there are: no play starts it."""
    found = forecast(snapshot(job("huge", gpus=9)), {"huge": known(1)})["huge"]

    assert (found.p50, found.is_cut) == (None, True)


def test_what_fits_now_starts_now() -> None:
    """An empty cluster takes it in the first cycle."""
    assert forecast(snapshot(job("new")), {"new": known(5)})["new"].p90 == NOW


def test_jobs_that_run_partly_are_not_foretold() -> None:
    """An elastic job that has started waits for more tasks, not for its start."""
    partly = running("part", since=NOW)
    partly = replace(partly, tasks=(*partly.tasks, Task("part-1", "worker", 1)))

    assert forecast(snapshot(partly), {"part": known(5)}) == {}


def test_a_job_that_outlived_all_alike_is_given_as_long_again() -> None:
    """After 500 s, where none took more than 300, another 500 are expected."""
    assert remaining(known(100, 300), elapsed=500, limit=None, quantile=0.5) == 500


def test_only_longer_times_can_still_come_true() -> None:
    """After 150 s the 100 s are ruled out."""
    assert remaining(known(100, 200, 300), elapsed=150, limit=None, quantile=0.1) == 50
    assert remaining(known(100, 200, 300), elapsed=150, limit=180, quantile=0.9) == 30


@given(key=st.text(max_size=20))
def test_over_all_plays_a_job_takes_each_part_once(key: str) -> None:
    """Each job is short, middling and long once, whatever its name."""
    taken = sorted(int(quantile_of(key, play, PLAYS) * PLAYS) for play in range(PLAYS))

    assert taken == list(range(PLAYS))


def test_rare_long_jobs_are_as_frequent_in_plays_as_in_history() -> None:
    """One in fifty takes 5,000 s and the rest 1 s: over 300 jobs the mean is 101 s, not 1."""
    run_time = known(*[1.0] * 49, 5000.0)
    taken = [
        remaining(run_time, elapsed=0, limit=None, quantile=quantile_of(str(job), play, PLAYS))
        for job in range(300)
        for play in range(PLAYS)
    ]

    assert 80 <= fmean(taken) <= 120


def test_a_job_like_those_that_run_on_is_taken_to_last_as_they_do() -> None:
    """Three took 10 s but seven run for 400 s by now: at even odds it outlasts them all."""
    lasts = Survival.of([10] * 3, [400] * 7)
    long = RunTime(lasts, Basis.HISTORY)

    assert remaining(long, elapsed=0, limit=None, quantile=0.2) == 10
    assert remaining(long, elapsed=0, limit=None, quantile=0.5) == 800
