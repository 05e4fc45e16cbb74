"""Room for whole gangs: what a job can spare, whole gangs, domains; quotas and nominations."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduling.engine.actions.gang_evicting import split
from scheduling.engine.cycle import open_session, plan
from scheduling.engine.reasons import ReasonCode
from scheduling.engine.types import (
    GPU,
    ActionConfig,
    Config,
    HyperNode,
    PluginConfig,
    Quota,
    Snapshot,
    TopologyMode,
    TopologyRule,
)
from tests.scenarios import cycle, read


def config(*plugins: str, actions: str, **arguments: str) -> Config:
    """Return a configuration of one tier."""
    return Config(
        actions=tuple(ActionConfig(name, arguments) for name in actions.split()),
        tiers=(tuple(PluginConfig(p) for p in plugins),),
    )


def evicted(snapshot: Snapshot, settings: Config) -> list[str]:
    """Return what a plan evicts."""
    return sorted(e.task for e in plan(snapshot, settings).evictions)


@pytest.mark.parametrize(
    ("minimum", "safe"),
    [(4, ["q/j-a-0", "q/j-b-0"]), (6, []), (7, ["q/j-a-0", "q/j-a-1", "q/j-a-2"])],
)
def test_job_spares_tasks_above_all_its_minimums(minimum: int, safe: list[str]) -> None:
    """A task can go while gang and role stay complete; of a broken gang all can."""
    snapshot = read(
        "nodes n: gpu=8\nqueue q:\njob q/j: 3 x gpu=1 role=a rmin=2 running n*3 ; "
        f"3 x gpu=1 role=b rmin=2 running n*3 min={minimum}"
    )
    session = open_session(snapshot, config(actions="allocate"))
    job = session.view("q/j")
    assert job is not None

    spared, rest = split(job, session.held_tasks(job))

    assert [task.key for _, task, _ in spared][: len(safe)] == safe
    assert len(spared) + len(rest) == 6
    assert len(spared) == (6 if minimum > 6 else len(safe))


@pytest.mark.parametrize(
    ("priority", "allow_whole", "expected"),
    [
        (5, "true", ["q/low-0", "q/low-1"]),
        (5, "false", []),
        (1, "true", []),
    ],
)
def test_gangpreempt_breaks_lower_gangs_only_if_allowed(
    priority: int, allow_whole: str, expected: list[str]
) -> None:
    """A gang goes as a whole, for a higher priority, unless whole bundles are switched off."""
    snapshot = read(
        "nodes n: gpu=2\nqueue q:\njob q/low: 2 x gpu=1 min=2 priority=1 running n*2\n"
        f"job q/new: 1 x gpu=1 priority={priority}"
    )

    found = evicted(
        snapshot,
        config("gang", "priority", actions="enqueue gangpreempt", allowWholeBundle=allow_whole),
    )

    assert found == expected


def test_gangpreempt_leaves_nothing_of_a_broken_gang() -> None:
    """What a gang could have spared goes with it, though its room is not needed."""
    snapshot = read(
        "nodes n: gpu=2 cpu=2\nqueue q:\n"
        "job q/low: 1 x cpu=1 role=a rmin=0 running n ; "
        "1 x gpu=1 role=b rmin=1 running n min=1 priority=1\n"
        "job q/new: 2 x gpu=1 priority=5"
    )

    found = evicted(snapshot, config("gang", "priority", actions="enqueue gangpreempt"))

    assert found == ["q/low-a-0", "q/low-b-0"]


def test_gangpreempt_takes_spare_tasks_before_gangs() -> None:
    """What a job can spare goes first, and no more than the gang needs."""
    snapshot = read(
        "nodes n: gpu=5\nqueue q:\njob q/firm: 2 x gpu=1 min=2 priority=1 running n*2\n"
        "job q/wide: 3 x gpu=1 min=1 priority=2 running n*3\njob q/new: 2 x gpu=1 priority=5"
    )

    found = plan(snapshot, config("gang", "priority", actions="enqueue gangpreempt"))

    assert sorted(e.task for e in found.evictions) == ["q/wide-0", "q/wide-1"]
    assert sorted(p.task for p in found.pipelined) == ["q/new-0", "q/new-1"]


def test_gangpreempt_evicts_nothing_for_a_gang_that_still_would_not_fit() -> None:
    """Without room for the minimum everything is undone."""
    snapshot = read(
        "nodes n: gpu=2\nqueue q:\njob q/low: 2 x gpu=1 min=0 priority=1 running n*2\n"
        "job q/new: 3 x gpu=1 priority=5"
    )

    assert evicted(snapshot, config("gang", "priority", actions="enqueue gangpreempt")) == []


@pytest.mark.parametrize(
    ("flags", "own", "expected"),
    [("", "yes", ["b/old-0"]), (" unreclaimable", "yes", []), ("", "no", [])],
)
def test_gangreclaim_takes_from_reclaimable_queues(
    flags: str, own: str, expected: list[str]
) -> None:
    """Priorities do not count between queues; what must not be evicted stays."""
    snapshot = read(
        f"nodes n: gpu=2\nqueue a:\nqueue b:{flags}\n"
        f"job b/old: 2 x gpu=1 min=1 priority=9 preemptable={own} running n*2\njob a/new: 1 x gpu=1"
    )

    settings = config("gang", "priority", "proportion", actions="enqueue gangreclaim")

    assert evicted(snapshot, settings) == expected


@pytest.mark.parametrize("shut", [True, False])
def test_gang_room_is_made_in_one_domain(shut: bool) -> None:
    """Of a hard job's domains one is cleared; what it would not use elsewhere stays."""
    snapshot = read(
        "nodes a b: gpu=2\nqueue q:\njob q/x: 1 x gpu=2 priority=1 running a\n"
        "job q/y: 2 x gpu=1 min=0 priority=2 running b*2\njob q/new: 2 x gpu=1 priority=5"
    )
    if shut:
        rule = TopologyRule(TopologyMode.HARD, 1)
        jobs = (*snapshot.jobs[:2], replace(snapshot.jobs[2], topology=rule))
        tree = (HyperNode("s", 1, "", frozenset({"b"})),)
        snapshot = replace(snapshot, jobs=jobs, hypernodes=tree)
    plugins = ("gang", "priority", "network-topology-aware")

    found = plan(snapshot, config(*plugins, actions="enqueue gangpreempt"))

    assert {p.node for p in found.pipelined} == {"b"}
    assert {e.node for e in found.evictions} == {"b"}


@pytest.mark.parametrize(
    ("plugins", "admitted"), [(("resourcequota",), ["ns/a"]), ((), ["ns/a", "ns/b"])]
)
def test_quota_counts_what_was_let_in(plugins: tuple[str, ...], admitted: list[str]) -> None:
    """The second job of a namespace is refused once the first has used the quota up."""
    snapshot = read("nodes n: gpu=4\nqueue ns:\njob ns/a: 2 x gpu=1\njob ns/b: 2 x gpu=1")
    jobs = tuple(replace(j, min_resources={GPU: 2000}) for j in snapshot.jobs)
    quota = Quota("q", "ns", {GPU: 3000}, {GPU: 500})
    snapshot = replace(snapshot, jobs=jobs, quotas=(quota, Quota("o", "other", {GPU: 0})))

    found = plan(snapshot, config(*plugins, actions="enqueue"))

    assert sorted(found.phases) == admitted
    if plugins:
        reason = found.job_reasons["ns/b"]
        assert (reason.code, reason.params["used"]) == (ReasonCode.QUOTA_EXCEEDED, 2500)


@pytest.mark.parametrize(("nominated", "node"), [("n2", "n2"), ("", "n1"), ("gone", "n1")])
def test_nominated_node_is_taken_if_it_fits(nominated: str, node: str) -> None:
    """A task goes where an earlier cycle wanted it, whatever the scores say."""
    snapshot = read("nodes n1 n2: gpu=1\nqueue q:\njob q/j: 1 x gpu=1")
    job = snapshot.jobs[0]
    tasks = (replace(job.tasks[0], nominated_node=nominated),)
    snapshot = replace(snapshot, jobs=(replace(job, tasks=tasks),))

    found = plan(snapshot, config("gang", "predicates", actions="allocate"))

    assert [b.node for b in found.binds] == [node]


def test_no_task_is_evicted_twice_when_a_job_gives_what_it_can_spare_and_then_the_rest() -> None:
    """First the spare task is taken, then the gang as a whole: each task once."""
    outcome = cycle(
        """
        nodes  n1: gpu=2
        queue  q:
        job    q/old: 2 x gpu=1 min=1 running n1*2 phase=Running
        job    q/new: 1 x gpu=2 priority=5
        """,
        config=Config(
            (ActionConfig("allocate"), ActionConfig("gangpreempt")),
            ((PluginConfig("priority"), PluginConfig("gang"), PluginConfig("predicates")),),
        ),
    )

    assert sorted(outcome.evicted) == ["q/old-0", "q/old-1"]
