"""Reservations: big jobs that small ones would starve."""

from __future__ import annotations

from dataclasses import replace

from scheduling.engine.after import apply_plan
from scheduling.engine.reasons import ReasonCode
from tests.scenarios import cycle, finish, settled

STARVED = """
    nodes  n1: gpu=4
    queue  q:
    job    q/big: 1 x gpu=4 created=0 sla={sla}
    job    q/s0: 1 x gpu=1 running n1 phase=Running limit={limit}
    job    q/s1: 1 x gpu=1 running n1 phase=Running limit={limit}
    job    q/s2: 1 x gpu=1 running n1 phase=Running limit={limit}
    job    q/s3: 1 x gpu=1 created=900
    job    q/s4: 1 x gpu=1 created=901 limit=50
"""


def test_small_jobs_pass_a_big_one_that_is_not_overdue() -> None:
    """Before its waiting time is over the big job keeps nothing."""
    outcome = cycle(STARVED.format(sla=5000, limit=5000))

    assert outcome.bound("q/s3") == 1
    assert outcome.plan.reservations == ()


def test_overdue_job_keeps_room_and_starts_when_it_is_free() -> None:
    """Past its time the big job keeps the node; it starts as soon as the three have ended."""
    first = cycle(STARVED.format(sla=500, limit=5000))

    assert first.binds == {"q/s4-0": "n1"}  # ends long before the others do
    assert [r.job for r in first.plan.reservations] == ["q/big"]
    reason = first.reason("q/big")
    assert reason.code == ReasonCode.RESERVED
    assert reason.params["nodes"] == ["n1"]
    second = cycle(finish(settled(first), "q/s0", "q/s4"))
    assert (second.binds, second.reason("q/s3").code) == ({}, ReasonCode.ROOM_RESERVED)
    third = cycle(finish(settled(second), "q/s1", "q/s2"))
    assert third.binds == {"q/big-0": "n1"}
    assert third.plan.reservations == ()


def test_a_min_of_something_else_keeps_nobody_from_a_reservation() -> None:
    """A queue keeps memory free for itself: an overdue job still waits for room, and is kept it."""
    other = "    queue  other: min.memory=1 keep_min\n"
    text = STARVED.format(sla=500, limit=5000).replace("gpu=4\n", "gpu=4 memory=8\n", 1)

    outcome = cycle(text + other)

    assert [r.job for r in outcome.plan.reservations] == ["q/big"]
    assert outcome.reason("q/big").code == ReasonCode.RESERVED


def test_nobody_uses_kept_room_when_the_start_is_unknown() -> None:
    """Without time limits of what runs, even a short job must not delay the reserved one."""
    text = STARVED.replace(" limit={limit}", "").format(sla=500)

    outcome = cycle(text)

    assert outcome.binds == {}
    assert outcome.plan.reservations[0].starts_at is None


def test_nothing_is_kept_for_what_can_never_fit() -> None:
    """A job larger than any node reserves nothing, and the small ones go on."""
    outcome = cycle(STARVED.format(sla=500, limit=5000).replace("1 x gpu=4", "1 x gpu=5"))

    assert outcome.plan.reservations == ()
    assert outcome.bound("q/s3") == 1


def test_reservation_ends_with_its_time() -> None:
    """An expired reservation no longer keeps anybody out unless it is made anew."""
    first = cycle(STARVED.format(sla=500, limit=5000))
    late = replace(settled(first), now=1e6)

    outcome = cycle(late)

    assert outcome.plan.reservations[0].expires_at == 1e6 + 3600


def test_one_reservation_per_queue() -> None:
    """A second overdue job of the queue waits without keeping room."""
    outcome = cycle(STARVED.format(sla=500, limit=5000) + "job q/big2: 1 x gpu=4 created=1 sla=500")

    assert [r.job for r in outcome.plan.reservations] == ["q/big"]


def test_suspended_job_keeps_no_room() -> None:
    """Room kept for a job that must not run any more is given up."""
    after = settled(cycle(STARVED.format(sla=500, limit=5000)))
    jobs = tuple(replace(j, is_runnable=j.key != "q/big") for j in after.jobs)

    outcome = cycle(replace(after, jobs=jobs))

    assert outcome.plan.reservations == ()
    assert outcome.reason("q/big").code == ReasonCode.NOT_RUNNABLE


def test_an_overdue_job_takes_nothing_that_another_queue_deserves() -> None:
    """Above its queue's share it is lent what is left, or it would be evicted a cycle later."""
    outcome = cycle("""
        nodes  n1: gpu=4
        queue  a:
        queue  b:
        job    a/first: 2 x gpu=1 sla=10
        job    a/second: 2 x gpu=1 sla=10 created=1
        job    b/entitled: 2 x gpu=1 created=2
    """)

    assert outcome.held == {"a/first": 2, "b/entitled": 2}


CONTESTED = """
    nodes  n1: gpu=2
    queue  left:
    queue  right:
    job    left/held: 2 x gpu=1 min=1 running n1*2 phase=Running
    job    left/new: 1 x gpu=1
    job    right/overdue: 1 x gpu=1 sla=10
"""


def test_who_makes_room_need_not_fill_what_a_reservation_lacks() -> None:
    """Beside room that an overdue job waits for, one eviction makes room for one task."""
    outcome = cycle(CONTESTED, actions="enqueue reserve allocate preempt")

    assert outcome.evicted == ["left/held-1"]
    assert (outcome.pipelined("left/new"), outcome.pipelined("right/overdue")) == (1, 0)
    assert [r.job for r in outcome.plan.reservations] == ["left/new", "right/overdue"]

    after = cycle(settled(outcome), actions="enqueue reserve allocate preempt")

    assert (after.binds, after.evicted) == ({"left/new-0": "n1"}, [])


def test_an_overdue_job_and_a_new_one_each_get_their_own_room() -> None:
    """Where the overdue job may take back, each of the two evictions is for the one it serves."""
    outcome = cycle(CONTESTED)

    served = {e.task: e.beneficiary for e in outcome.plan.evictions}
    assert served == {"left/held-1": "left/new", "left/held-0": "right/overdue"}
    assert sorted(cycle(settled(outcome)).binds) == ["left/new-0", "right/overdue-0"]


def test_room_that_evictions_made_waits_with_its_tasks() -> None:
    """While its victim is still ending, a job beside a reservation evicts nobody else."""
    actions = "enqueue reserve allocate preempt"
    outcome = cycle(CONTESTED, actions=actions)
    ending = replace(apply_plan(outcome.snapshot, outcome.plan), now=1001.0)

    again = cycle(ending, actions=actions)

    assert (again.evicted, again.pipelined("left/new")) == ([], 1)
