"""What is asked about one job is answered as the cycle of everybody would, without running it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from scheduling.engine.after import apply_plan
from scheduling.engine.cycle import DEFAULT_CONFIG, close, plan, run
from scheduling.engine.explain import Fit, Ladder, explain, fits, ladder_of
from scheduling.engine.tables import Memo
from scheduling.engine.types import Job, Reason, Snapshot
from scheduling.simulator.state import release
from tests.random_clusters import clusters, leaves_of, waiting_job
from tests.scenarios import read
from tests.unit.engine.test_properties import examples


def from_everybody(snapshot: Snapshot, key: str) -> Ladder:
    """Return the ladder of a job from a cycle in which everybody was looked at."""
    session = run(snapshot, DEFAULT_CONFIG)
    return ladder_of(session, close(session), key)


def days(snapshot: Snapshot) -> Iterator[Snapshot]:
    """Yield a cluster as it is, as its plan leaves it, and once it has come to rest."""
    yield snapshot
    for _ in range(3):
        decided = plan(snapshot, DEFAULT_CONFIG)
        snapshot = replace(release(apply_plan(snapshot, decided)), now=snapshot.now + 1)
    yield snapshot


@examples(6)
@given(clusters())
def test_explain_says_what_the_plan_says(snapshot: Snapshot) -> None:
    """Of every waiting job: the same rungs, numbers and starts, asked one after the other.

    And once the plan is carried out, the reason that it gave: a plan's reasons are those of its
    last look, on the state that it leaves. A cluster has 11 waiting jobs to ask about.
    """
    for state in days(snapshot):
        decided = plan(state, DEFAULT_CONFIG)
        left = apply_plan(state, decided)
        memo = Memo()
        for key, reason in decided.job_reasons.items():
            assert explain(state, DEFAULT_CONFIG, key, memo=memo) == from_everybody(state, key)
            assert standing(explain(left, DEFAULT_CONFIG, key).headline) == standing(reason)


def standing(reason: Reason | None) -> Reason | None:
    """Return a reason without how many are evicted: once they are ending, nobody is."""
    if reason is None:
        return None
    return replace(reason, params={k: v for k, v in reason.params.items() if k != "evictions"})


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
@given(clusters(), st.randoms(use_true_random=False))
def test_fits_says_what_the_next_plan_would_do(snapshot: Snapshot, dice: Random) -> None:
    """Of a job that is submitted to any queue, which leaves no trace: the next answer is right."""
    leaves = leaves_of(snapshot.queues)
    for state in days(snapshot):
        memo = Memo()
        for _ in range(3):
            job = waiting_job(dice, "asked", dice.choice(leaves), has_rules=True)
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
