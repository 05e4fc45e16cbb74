"""The cases that users brought: gangs that must not deadlock, elastic jobs, fair queues."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduling.engine.reasons import ReasonCode
from scheduling.engine.types import SubGroupPolicy
from tests.scenarios import cycle, finish, read, run, settled

TWO_JOBS = """
    nodes  n1: gpu=4 devices
    queue  q:
    job    q/first: 4 x gpu=1
    job    q/second: 4 x gpu=1
"""


def test_two_gangs_on_four_gpus_never_share() -> None:
    """One gang runs whole and the other waits whole, with its numbers as the reason."""
    outcome = cycle(TWO_JOBS)

    assert outcome.held == {"q/first": 4}
    reason = outcome.reason("q/second")
    assert reason.code == ReasonCode.GANG_INCOMPLETE
    assert reason.params["placeable"] == 0
    assert reason.params["min_available"] == 4
    assert reason.params["histogram"] == {"Insufficient nvidia.com/gpu": 1}


def test_waiting_gang_starts_when_the_other_has_ended() -> None:
    """The gang that waited gets all four GPUs, each device once."""
    after = finish(settled(cycle(TWO_JOBS)), "q/first")

    outcome = cycle(after)

    assert outcome.bound("q/second") == 4
    assert sorted(b.devices for b in outcome.plan.binds) == [(f"n1-gpu{i}",) for i in range(4)]


def test_elastic_jobs_submitted_together_share_by_turns() -> None:
    """Use case 1: both minimums are placed first, then single tasks in turn."""
    outcome = cycle("""
        nodes  n1: gpu=10
        queue  q:
        job    q/a: 10 x gpu=1 min=3
        job    q/b: 10 x gpu=1 min=3
    """)

    assert "".join(job[-1] for job in outcome.order) == "aaabbbabab"


def test_elastic_job_gives_way_inside_its_queue() -> None:
    """Use case 2: five elastic tasks leave for the second job's minimum, and stay away."""
    first = cycle("""
        nodes  n1: gpu=10
        queue  q:
        job    q/old: 10 x gpu=1 min=5 running n1*10 phase=Running
        job    q/new: 10 x gpu=1 min=5
    """)

    assert first.evicted == [f"q/old-{i}" for i in range(5, 10)]
    assert first.pipelined("q/new") == 5
    second = cycle(settled(first))
    assert (second.held, second.evicted) == ({"q/old": 5, "q/new": 5}, [])
    third = cycle(settled(second))
    assert (third.binds, third.evicted) == ({}, [])


def test_elastic_job_gives_way_to_another_queue() -> None:
    """Use case 3: the second queue takes back its half, and nothing swings back."""
    first = cycle("""
        nodes  n1: gpu=10
        queue  q1: weight=1
        queue  q2: weight=1
        job    q1/old: 10 x gpu=1 min=5 running n1*10 phase=Running
        job    q2/new: 10 x gpu=1 min=5
    """)

    assert first.deserved() == {"q1": 5, "q2": 5}
    assert first.evicted == [f"q1/old-{i}" for i in range(5, 10)]
    second = cycle(settled(first))
    assert second.held == {"q1/old": 5, "q2/new": 5}
    assert cycle(settled(second)).evicted == []


def test_elastic_tasks_of_an_unreclaimable_queue_give_way() -> None:
    """Borrowed elastic tasks go back even where the queue is not reclaimable."""
    outcome = cycle("""
        nodes  n1: gpu=10
        queue  q1: unreclaimable
        queue  q2: unreclaimable
        job    q1/old: 10 x gpu=1 min=5 running n1*10 phase=Running
        job    q2/new: 10 x gpu=1 min=5
    """)

    assert outcome.evicted == [f"q1/old-{i}" for i in range(5, 10)]


def test_two_queues_of_equal_weight_halve_the_cluster() -> None:
    """Twenty single tasks of each queue wait for ten GPUs: five each."""
    jobs = "\n".join(
        f"job {q}/{i}: 1 x gpu=1 created={i if q == 'a' else 100 + i}"
        for q in "ab"
        for i in range(20)
    )

    outcome = cycle(f"nodes n1: gpu=10\nqueue a:\nqueue b:\n{jobs}")

    assert [sum(b.job.startswith(q) for b in outcome.plan.binds) for q in "ab"] == [5, 5]


TREE = """
    nodes  n1 n2: gpu=8
    queue  org:
    queue  vision: parent=org min.gpu=8
    queue  speech: parent=org min.gpu=8
    queue  v1: parent=vision min.gpu=4
    queue  v2: parent=vision min.gpu=4
    queue  s1: parent=speech
"""


def test_idle_share_is_lent_to_siblings_first() -> None:
    """What team v1 leaves idle goes to its sibling v2 before it goes to the other department."""
    outcome = cycle(
        TREE
        + """
        job    v2/a: 16 x gpu=1 min=1
        job    s1/b: 16 x gpu=1 min=1
    """
    )

    assert outcome.held == {"v2/a": 8, "s1/b": 8}


def test_idle_department_is_lent_to_the_other() -> None:
    """With nobody else waiting one team may use the whole cluster."""
    outcome = cycle(TREE + "job s1/b: 20 x gpu=1 min=1")

    assert outcome.held == {"s1/b": 16}


def test_lent_share_is_taken_back_from_the_sibling() -> None:
    """Team v1 comes back and gets its minimum from v2; the other department keeps its half."""
    outcome = cycle(
        TREE
        + """
        job    v2/a: 8 x gpu=1 min=1 running n1*8 phase=Running
        job    s1/b: 8 x gpu=1 min=1 running n2*8 phase=Running
        job    v1/c: 4 x gpu=1
    """
    )

    assert outcome.evicted == [f"v2/a-{i}" for i in range(4, 8)]
    assert outcome.pipelined("v1/c") == 4


def test_nothing_swings_in_a_hundred_cycles() -> None:
    """Three hungry queues settle, and nothing is evicted any more."""
    scenario = """
        nodes  n1 n2: gpu=5
        queue  a:
        queue  b:
        queue  c:
        job    a/x: 10 x gpu=1 min=1 running n1*5 n2*5 phase=Running
        job    b/y: 10 x gpu=1 min=1
        job    c/z: 10 x gpu=1 min=1
    """
    outcome = run(scenario, cycles=6)

    for _ in range(94):
        outcome = cycle(settled(outcome))
        assert outcome.evicted == []
    assert sorted(outcome.held.values()) == [3, 3, 4]


def test_nothing_starts_in_the_gap_of_a_gang_of_higher_priority_that_could_evict_it() -> None:
    """A small job does not start in one cycle to be evicted in the next."""
    outcome = cycle("""
        nodes  n1: gpu=1
        nodes  n2: gpu=4
        queue  a:
        job    a/old: 1 x gpu=2 running n2*1 phase=Running
        job    a/small: 1 x gpu=2
        job    a/urgent: 4 x gpu=1 min=4 priority=1
    """)

    assert outcome.evicted == ["a/old-0"]
    assert outcome.pipelined("a/urgent") == 4
    assert outcome.bound("a/small") == 0


def test_the_largest_tasks_of_a_gang_are_placed_first_where_only_that_fits() -> None:
    """Small tasks placed first would leave one GPU too few on both nodes."""
    outcome = cycle("""
        nodes  n1: gpu=3
        nodes  n2: gpu=5
        queue  a:
        job    a/x: 2 x gpu=1 role=ps min=5 ; 3 x gpu=2 role=worker
    """)

    assert outcome.held == {"a/x": 5}


def test_room_that_evictions_made_is_used_though_the_queue_is_above_its_share() -> None:
    """The job of higher priority starts in the room made for it instead of evicting again."""
    outcome = run(
        """
        nodes  n1: gpu=4
        queue  a:
        queue  b:
        job    a/old: 4 x gpu=1 min=1 running n1*4 phase=Running sla=1
        job    a/urgent: 1 x gpu=1 priority=2
        job    b/large: 9 x gpu=1
        """,
        cycles=4,
    )

    assert outcome.evicted == []
    assert outcome.held == {"a/old": 3, "a/urgent": 1}


def test_nobody_overtakes_the_head_of_a_fifo_queue() -> None:
    """Neither idle room nor that of elastic tasks goes to a gang behind the one that waits."""
    outcome = cycle("""
        nodes  n1: gpu=5
        queue  q: policy=fifo max.gpu=4
        job    q/old: 3 x gpu=1 min=1 running n1*3 phase=Running
        job    q/head: 4 x gpu=1 created=1
        job    q/next: 2 x gpu=1 created=2
    """)

    assert (outcome.plan.binds, outcome.plan.evictions) == ((), ())
    assert outcome.reason("q/next").params["job"] == "q/head"


def test_idle_room_is_lent_rather_than_promised() -> None:
    """A gang above its queue's share starts on idle GPUs at once; none is evicted or kept."""
    outcome = cycle("""
        nodes  n1: gpu=6
        queue  other:
        queue  q:
        job    other/o: 4 x gpu=2 min=1 created=3
        job    q/old: 1 x gpu=2 running n1*1 phase=Running
        job    q/new: 1 x gpu=2 priority=2 created=1
    """)

    assert (outcome.plan.pipelined, outcome.plan.evictions) == ((), ())
    assert "q/new" in {b.job for b in outcome.plan.binds}


@pytest.mark.parametrize(("needed", "count"), [(1, 0), (0, 2)])
def test_elastic_tasks_go_only_as_far_as_sub_groups_stay_whole(needed: int, count: int) -> None:
    """Two tasks of one node belong to different sub-groups: both would be broken, one is needed."""
    snapshot = read("""
        nodes  n1 n2: gpu=2
        queue  q:
        job    q/old: 2 x gpu=1 role=w0 running n1 n2 ; 2 x gpu=1 role=w1 running n1 n2 min=2
        job    q/new: 1 x gpu=2 created=1
    """)
    old = snapshot.jobs[0]
    policy = SubGroupPolicy("w", ("part",), size=2, min_groups=needed)
    roles = tuple(replace(role, labels={"part": role.name}) for role in old.roles)
    old = replace(old, roles=roles, sub_groups=(policy,))

    outcome = cycle(replace(snapshot, jobs=(old, snapshot.jobs[1])))

    assert len(outcome.plan.evictions) == count


@pytest.mark.parametrize(("needed", "count"), [(2, 2), (3, 0)])
def test_nodes_with_like_victims_are_judged_each_by_itself(needed: int, count: int) -> None:
    """The system's jobs stay, though all else about them is like those that have to go."""
    snapshot = read(f"""
        nodes  n1 n2 n3: gpu=1
        queue  rich: weight=1
        queue  poor: weight=9
        job    rich/a: 1 x gpu=1 running n1
        job    rich/b: 1 x gpu=1 running n2
        job    rich/c: 1 x gpu=1 running n3
        job    poor/new: {needed} x gpu=1
    """)
    last = snapshot.jobs[2]
    system = tuple(replace(task, key=f"kube-system/{task.key}") for task in last.tasks)
    jobs = (*snapshot.jobs[:2], replace(last, tasks=system), snapshot.jobs[3])

    outcome = cycle(replace(snapshot, jobs=jobs))

    assert len(outcome.plan.evictions) == count
    assert not any("kube-system" in eviction.task for eviction in outcome.plan.evictions)
