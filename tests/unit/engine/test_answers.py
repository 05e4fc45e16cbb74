"""What is asked about one job is answered as the cycle of everybody would, without running it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from scheduling.engine.after import apply_plan
from scheduling.engine.cycle import DEFAULT_CONFIG, close, plan, run
from scheduling.engine.explain import Fit, Ladder, explain, fits, ladder_of
from scheduling.engine.tables import Memo
from scheduling.engine.types import Job, Quota, Snapshot
from scheduling.simulator.state import release
from tests.scenarios import read
from tests.unit.engine.test_properties import examples, jobs_of, snapshots


def from_everybody(snapshot: Snapshot, key: str) -> Ladder:
    """Return the ladder of a job from a cycle in which everybody was looked at."""
    session = run(snapshot, DEFAULT_CONFIG)
    return ladder_of(session, close(session), key)


@st.composite
def crowds(draw: st.DrawFn) -> Snapshot:
    """Draw a cluster with more waiting jobs than room, some of them behind walls."""
    snapshot = draw(snapshots())
    parents = {queue.parent for queue in snapshot.queues}
    leaves = [queue.name for queue in snapshot.queues if queue.name not in parents]
    more = [
        draw(jobs_of(f"k{i}", draw(st.sampled_from(leaves))))
        for i in range(draw(st.integers(3, 12)))
    ]
    walls: tuple[Quota, ...] = ()
    if draw(st.booleans()):
        most = {"nvidia.com/gpu": 1000 * draw(st.integers(1, 4))}
        walls = (Quota("wall", "", most, queues=frozenset(leaves), is_each=draw(st.booleans())),)
    return replace(snapshot, jobs=(*snapshot.jobs, *more), quotas=walls)


def days(snapshot: Snapshot) -> Iterator[Snapshot]:
    """Yield a cluster as it is, as its plan leaves it, and once it has come to rest."""
    yield snapshot
    for _ in range(3):
        decided = plan(snapshot, DEFAULT_CONFIG)
        snapshot = replace(release(apply_plan(snapshot, decided)), now=snapshot.now + 1)
    yield snapshot


@examples(4)
@given(crowds())
def test_explain_says_what_the_next_plan_says(snapshot: Snapshot) -> None:
    """Of every waiting job: the same rungs, numbers and starts, asked one after the other."""
    for state in days(snapshot):
        memo = Memo()
        reasons = plan(state, DEFAULT_CONFIG).job_reasons
        for key in reasons:
            ladder = explain(state, DEFAULT_CONFIG, key, memo=memo)
            assert ladder == from_everybody(state, key)
            assert ladder.headline == reasons[key]


def asked(snapshot: Snapshot, job: Job) -> Fit:
    """Return what the cycle of everybody says of one job more."""
    tasks = tuple(replace(task, key=f"{job.key}/{task.key}") for task in job.tasks)
    whole = replace(snapshot, jobs=(*snapshot.jobs, replace(job, tasks=tasks)))
    session = run(whole, DEFAULT_CONFIG)
    decided = close(session)
    binds = tuple(bind for bind in decided.binds if bind.job == job.key)
    promised = any(one.job == job.key for one in decided.pipelined)
    return Fit(bool(binds), promised, binds, ladder_of(session, decided, job.key))


def in_order(fit: Fit) -> Fit:
    """Return an answer with its starts by task: their order among each other says nothing."""
    return replace(fit, binds=tuple(sorted(fit.binds, key=lambda bind: bind.task)))


@examples(4)
@given(crowds(), st.data())
def test_fits_says_what_the_next_plan_would_do(snapshot: Snapshot, data: st.DataObject) -> None:
    """Of a job that is submitted to any queue, which leaves no trace: the next answer is right."""
    queues = sorted({job.queue for job in snapshot.jobs})
    for state in days(snapshot):
        memo = Memo()
        for _ in range(3):
            job = data.draw(jobs_of("asked", data.draw(st.sampled_from(queues))))
            fit = fits(state, DEFAULT_CONFIG, job, memo=memo)
            assert in_order(fit) == in_order(asked(state, job))


def test_a_resource_that_no_node_has_is_no_obstacle_to_asking() -> None:
    """A job may ask for what no table knows: it does not fit, and the next one does."""
    snapshot = read("nodes n1: gpu=4\nqueue q:")
    plain = read("queue q:\njob q/x: 1 x gpu=1").jobs[0]
    strange = replace(plain, roles=(replace(plain.roles[0], request={"fpga": 1000}),))
    memo = Memo()

    assert [
        fits(snapshot, DEFAULT_CONFIG, job, memo=memo).fits_now for job in (strange, plain)
    ] == [
        False,
        True,
    ]
