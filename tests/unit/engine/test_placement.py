"""Where tasks go: filters, devices, packing; and queues that are closed or full."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduling.engine.reasons import ReasonCode
from tests.scenarios import cycle, read


@pytest.mark.parametrize(
    ("node", "job", "cause"),
    [
        ("gpu=1 cordoned", "gpu=1", "not_schedulable"),
        ("gpu=1 taint.dedicated=x", "gpu=1", "taint"),
        ("gpu=1 label.zone=b", "gpu=1 select.zone=a", "selector"),
        ("gpu=1 runtimes=torch", "gpu=1 image=numpy", "runtime"),
        ("gpu=1", "gpu=2", "Exceeds nvidia.com/gpu"),
        ("gpu=1 pods=0", "gpu=1", "Exceeds pods"),
    ],
)
def test_what_keeps_a_task_off_a_node_is_counted(node: str, job: str, cause: str) -> None:
    """The reason names the predicate and how many nodes fail it."""
    outcome = cycle(f"nodes n1 n2: {node}\nqueue q:\njob q/j: 1 x {job}")

    reason = outcome.reason("q/j")
    assert (reason.code, reason.params["histogram"]) == (ReasonCode.NODES_UNFIT, {cause: 2})


@pytest.mark.parametrize(
    ("node", "job"),
    [
        ("gpu=1 taint.dedicated=x", "gpu=1 tolerate=dedicated"),
        ("gpu=1 label.zone=a", "gpu=1 select.zone=a"),
        ("gpu=1 runtimes=torch,numpy", "gpu=1 image=numpy"),
        ("gpu=1", "gpu=1 image=anything"),
    ],
)
def test_what_meets_the_filters_is_placed(node: str, job: str) -> None:
    """Tolerated taints, matching labels and offered images let a task in."""
    assert cycle(f"nodes n1: {node}\nqueue q:\njob q/j: 1 x {job}").binds == {"q/j-0": "n1"}


def test_small_tasks_leave_whole_nodes_free() -> None:
    """One GPU goes to the node with the fewest free ones, so that four still fit together."""
    outcome = cycle("""
        nodes  n1 n2: gpu=4
        queue  q:
        job    q/run: 1 x gpu=1 running n2 phase=Running
        job    q/one: 1 x gpu=1 created=1
        job    q/four: 1 x gpu=4 created=2
    """)

    assert outcome.binds == {"q/one-0": "n2", "q/four-0": "n1"}


def test_tasks_without_gpus_go_where_there_are_none() -> None:
    """A CPU task fills the CPU node first."""
    outcome = cycle("nodes a: gpu=4 cpu=8\nnodes b: cpu=8\nqueue q:\njob q/j: 1 x cpu=1")

    assert outcome.binds == {"q/j-0": "b"}


def test_two_gpus_come_from_one_numa_node() -> None:
    """Of four devices on two NUMA nodes a task of two gets neighbours."""
    outcome = cycle("""
        nodes  n1: gpu=4 devices
        queue  q:
        job    q/j: 1 x gpu=2
        job    q/k: 1 x gpu=2
    """)

    assert sorted(b.devices for b in outcome.plan.binds) == [
        ("n1-gpu0", "n1-gpu1"),
        ("n1-gpu2", "n1-gpu3"),
    ]


def test_unhealthy_device_is_never_given_out() -> None:
    """Of two GPUs one is broken: one task runs, the other waits."""
    outcome = cycle(
        "nodes n1: gpu=2 devices bad0\nqueue q:\njob q/a: 1 x gpu=1\njob q/b: 1 x gpu=1"
    )

    assert [b.devices for b in outcome.plan.binds] == [("n1-gpu1",)]
    assert outcome.reason("q/b").params["histogram"] == {"devices": 1}


def test_parts_of_a_device_fill_one_before_the_next() -> None:
    """Two halves share a device; a whole one gets the other."""
    outcome = cycle("""
        nodes  n1: gpu=2 devices
        queue  q:
        job    q/a: 1 x gpu=0.5
        job    q/b: 1 x gpu=0.5
        job    q/c: 1 x gpu=1
    """)

    assert [b.devices for b in outcome.plan.binds] == [("n1-gpu0",), ("n1-gpu0",), ("n1-gpu1",)]


@pytest.mark.parametrize(
    ("queue", "code"),
    [
        ("state=Closed", ReasonCode.QUEUE_CLOSED),
        ("state=Closing", ReasonCode.QUEUE_CLOSED),
        ("max.gpu=1", ReasonCode.QUEUE_MAX),
    ],
)
def test_queue_that_may_not_take_more_says_so(queue: str, code: ReasonCode) -> None:
    """Closed queues take nothing, full ones nothing more; also where a parent is meant."""
    outcome = cycle(f"""
        nodes  n1: gpu=4
        queue  top: {queue}
        queue  q: parent=top
        job    q/j: 2 x gpu=1 phase=Inqueue
    """)

    assert (outcome.binds, outcome.reason("q/j").code) == ({}, code)


def test_job_in_a_queue_with_children_is_refused_alone() -> None:
    """A misplaced job waits with its reason; the others run."""
    outcome = cycle("""
        nodes  n1: gpu=4
        queue  top:
        queue  q: parent=top
        job    top/j: 1 x gpu=1
        job    q/k: 1 x gpu=1
        job    none/l: 1 x gpu=1
    """)

    assert outcome.binds == {"q/k-0": "n1"}
    assert outcome.reason("top/j").code == ReasonCode.QUEUE_NOT_LEAF
    assert outcome.reason("none/l").code == ReasonCode.QUEUE_MISSING


def test_role_minimums_are_always_enforced() -> None:
    """Four of a gang's minimum fit, but no server among them: nothing starts."""
    outcome = cycle("""
        nodes  n1: gpu=4
        queue  q:
        job    q/j: 1 x cpu=1 role=ps rmin=1 ; 6 x gpu=1 role=worker rmin=1 min=3
    """)

    assert outcome.binds == {}
    assert outcome.reason("q/j").params["role"] == "ps"


def test_gang_that_lacks_a_large_task_gets_no_place_for_the_one_that_asks_for_nothing() -> None:
    """Its reason is the large task, not room that somebody else were to leave."""
    outcome = cycle("""
        nodes  n: cpu=4
        queue  q:
        job    q/gang: 1 x role=a ; 1 x cpu=9 role=b min=2
    """)

    assert outcome.binds == {}
    assert outcome.reason("q/gang").code == ReasonCode.GANG_INCOMPLETE


def test_fifo_queue_waits_for_its_head() -> None:
    """In a FIFO queue a small job does not pass a big one that does not fit."""
    outcome = cycle("""
        nodes  n1: gpu=2
        queue  q: policy=fifo
        job    q/big: 1 x gpu=4 created=1
        job    q/small: 1 x gpu=1 created=2 priority=9
    """)

    assert outcome.binds == {}
    assert outcome.reason("q/small").code == ReasonCode.BEHIND_HEAD


def test_fifo_queue_does_not_wait_for_what_can_never_fit() -> None:
    """A head that asks more than the queue's max does not hold up the rest."""
    outcome = cycle("""
        nodes  n1: gpu=8
        queue  q: policy=fifo max.gpu=2
        job    q/big: 1 x gpu=4 created=1 phase=Inqueue
        job    q/small: 1 x gpu=1 created=2
    """)

    assert outcome.binds == {"q/small-0": "n1"}


def test_users_of_a_queue_take_turns() -> None:
    """Of two users' waiting jobs the one who holds less comes first."""
    outcome = cycle("""
        nodes  n1: gpu=4
        queue  q:
        job    q/a1: 1 x gpu=1 owner=ann created=1
        job    q/a2: 1 x gpu=1 owner=ann created=2
        job    q/a3: 1 x gpu=1 owner=ann created=3
        job    q/b1: 1 x gpu=1 owner=bob created=4
        job    q/b2: 1 x gpu=1 owner=bob created=5
    """)

    assert outcome.order == ["q/a1", "q/b1", "q/a2", "q/b2"]


def test_min_that_is_kept_is_not_borrowed() -> None:
    """A queue that does not lend its min keeps it free from the others."""
    outcome = cycle(
        "nodes n1: gpu=4\nqueue a:\nqueue b: min.gpu=3 keep_min\njob a/j: 4 x gpu=1 min=1"
    )

    assert outcome.held == {"a/j": 1}
    assert outcome.reason("a/j").code in (ReasonCode.QUEUE_SHARE, ReasonCode.MIN_KEPT_FREE)


def test_higher_priority_takes_a_whole_gang() -> None:
    """A gang's minimum goes only as a whole, and only for a higher priority."""
    text = """
        nodes  n1 n2: gpu=2
        queue  q:
        job    q/low: 4 x gpu=1 running n1*2 n2*2 phase=Running
        job    q/new: 2 x gpu=1 priority={priority}
    """

    assert cycle(text.format(priority=0)).evicted == []
    assert cycle(text.format(priority=1)).evicted == [f"q/low-{i}" for i in range(4)]


def test_nothing_is_evicted_for_a_gang_that_still_would_not_fit() -> None:
    """Five GPUs are asked of four: the elastic tasks stay."""
    outcome = cycle("""
        nodes  n1: gpu=4
        queue  q:
        job    q/old: 4 x gpu=1 min=1 running n1*4 phase=Running
        job    q/new: 5 x gpu=1 priority=3
    """)

    assert outcome.evicted == []


def test_only_the_victim_that_is_needed_goes() -> None:
    """One task of four GPUs makes room alone: the small ones are spared."""
    outcome = cycle("""
        nodes  n1: gpu=6
        queue  q:
        job    q/v1: 1 x gpu=1 running n1 phase=Running created=9
        job    q/v2: 1 x gpu=1 running n1 phase=Running created=8
        job    q/v3: 1 x gpu=4 running n1 phase=Running created=7
        job    q/new: 1 x gpu=4 priority=5
    """)

    assert outcome.evicted == ["q/v3-0"]


def test_job_without_tasks_harms_nobody() -> None:
    """A job whose tasks are not there yet is passed over."""
    state = read("nodes n1: gpu=1\nqueue q:\njob q/a: 1 x gpu=1\njob q/b: 1 x gpu=1")
    empty = replace(state.jobs[0], tasks=(), min_available=0)

    assert cycle(replace(state, jobs=(empty, state.jobs[1]))).binds == {"q/b-0": "n1"}
