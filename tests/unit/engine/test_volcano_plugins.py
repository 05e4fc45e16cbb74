"""The plugins that follow Volcano, against the numbers of its documents, each also switched off."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from scheduling.engine.callbacks import Vote
from scheduling.engine.cycle import open_session
from scheduling.engine.durations import parse_duration
from scheduling.engine.plugins.capacity import Capacity
from scheduling.engine.session import Session
from scheduling.engine.shapes import UNLIMITED
from scheduling.engine.types import (
    CPU,
    GPU,
    MEMORY,
    ActionConfig,
    Config,
    Job,
    Node,
    PluginConfig,
    Queue,
    Snapshot,
)
from tests.scenarios import GIB, cycle, read


def config(*plugins: PluginConfig | str, actions: str = "allocate") -> Config:
    """Return a configuration of one tier."""
    return Config(
        actions=tuple(ActionConfig(name) for name in actions.split()),
        tiers=(tuple(PluginConfig(p) if isinstance(p, str) else p for p in plugins),),
    )


@pytest.mark.parametrize(
    ("queues", "jobs", "held"),
    [
        (("weight=1", "weight=1"), (10, 10), (5, 5)),
        (("weight=3", "weight=1"), (10, 1), (9, 1)),
        (("weight=1", "weight=1 min.gpu=6 keep_min"), (10, 2), (4, 2)),
    ],
)
def test_proportion_deals_out_by_weight(
    queues: tuple[str, str], jobs: tuple[int, int], held: tuple[int, int]
) -> None:
    """Weights, demand and a min that is kept free, as in the document's three examples."""
    text = "nodes n1: gpu=10\n" + "\n".join(
        f"queue q{i}: {queues[i]}\njob q{i}/j: {jobs[i]} x gpu=1 min=1" for i in range(2)
    )

    outcome = cycle(text, config=config("gang", "proportion"))

    assert (outcome.held["q0/j"], outcome.held["q1/j"]) == held


@pytest.mark.parametrize(("disabled", "held"), [((), 2), (("allocatable",), 4)])
def test_proportion_holds_back_only_while_its_flag_is_on(
    disabled: tuple[str, ...], held: int
) -> None:
    """Two GPUs are kept for the other queue's min; switched off, nobody keeps them."""
    text = "nodes n1: gpu=4\nqueue a:\nqueue b: min.gpu=2 keep_min\njob a/j: 4 x gpu=1 min=1"
    plugin = PluginConfig("proportion", disabled=frozenset(disabled))

    assert cycle(text, config=config("gang", plugin)).held == {"a/j": held}


def tree() -> Snapshot:
    """Return the worked example of two departments on 16 GPUs."""
    base = read("nodes n1: gpu=16")
    gpus = {GPU: 1000}
    return replace(
        base,
        queues=(
            Queue("root"),
            Queue(
                "A",
                parent="root",
                deserved=_times(gpus, 8),
                min=_times(gpus, 2),
                max=_times(gpus, 12),
            ),
            Queue("a1", parent="A", deserved=_times(gpus, 4), min=_times(gpus, 2)),
            Queue("a2", parent="A", deserved=_times(gpus, 4)),
            Queue("B", parent="root", deserved=_times(gpus, 8)),
        ),
    )


def _times(amounts: dict[str, int], factor: int) -> dict[str, int]:
    return {name: amount * factor for name, amount in amounts.items()}


def test_capacity_of_a_tree_keeps_a_siblings_min() -> None:
    """a1 may rise to 12, a2 to 10 because 2 are kept for a1, B has no limit of its own."""
    session = open_session(
        tree(), config(PluginConfig("capacity", enabled=frozenset({"hierarchy"})))
    )

    capacity = Capacity(session, PluginConfig("capacity", enabled=frozenset({"hierarchy"})))
    gpu = session.tables.gpu_dim
    real = {name: capacity.real[name][gpu] for name in ("a1", "a2", "B")}
    assert (real["a1"], real["a2"]) == (12_000, 10_000)
    assert real["B"] > UNLIMITED // 2


def test_binpack_scores_as_documented() -> None:
    """Half-used node, request 2 of 8 CPUs and 4 of 16 GiB: 75; a request that overflows: 0."""
    state = read("""
        nodes  n1: cpu=8 memory=16
        queue  q:
        job    q/run: 1 x cpu=4 memory=8 running n1 phase=Running
        job    q/a: 1 x cpu=2 memory=4
        job    q/b: 1 x cpu=5 memory=4
    """)
    session = open_session(state, config("binpack"))

    scores = [
        float(
            session.each("node_order")[0](session.tables.rows[key].roles[0].shape, slice(None))[0]
        )
        for key in ("q/a", "q/b")
    ]

    assert scores == [75.0, 0.0]


def asking(name: str, cpus: int) -> Job:
    """Return a waiting job that states its minimum."""
    job = read(f"queue q:\njob q/{name}: 1 x cpu={cpus}").jobs[0]
    return replace(job, min_resources={CPU: cpus * 1000, MEMORY: GIB})


def test_overcommit_books_what_it_lets_in() -> None:
    """Ten of ten in use, factor 1.2: a job of 2 is let in, of 3 not, and no second one of 2."""
    full = read(
        "nodes n1: cpu=10 memory=100\nqueue q:\njob q/r: 10 x cpu=1 running n1*10 phase=Running"
    )
    state = replace(
        full, jobs=(*full.jobs, asking("two", 2), asking("three", 3), asking("more", 2))
    )
    session = open_session(state, config("overcommit"))

    assert admits(session, "q/two")
    assert not admits(session, "q/three")
    view = session.view("q/two")
    for callback in session.each("job_enqueued"):
        callback(view)
    assert not admits(session, "q/more")


def admits(session: Session, key: str) -> bool:
    """Return the admission vote on a job."""
    return session.vote("job_enqueueable", session.view(key))


@pytest.mark.parametrize(
    ("tiers", "answer"),
    [
        ([[Vote.REJECT, Vote.PERMIT]], False),
        ([[Vote.PERMIT], [Vote.REJECT]], True),
        ([[Vote.ABSTAIN], [Vote.REJECT]], False),
        ([], True),
    ],
)
def test_votes_end_with_the_first_tier_that_permits(tiers: list[list[Vote]], answer: bool) -> None:
    """A reject counts up to the tier of the first permit; silence is yes."""
    session = open_session(read("nodes n1: gpu=1\nqueue q:"), Config(actions=(), tiers=()))
    session.callbacks["job_pipelined"] = [[_voter(vote) for vote in tier] for tier in tiers]

    assert session.vote("job_pipelined", None) is answer


def _voter(vote: Vote) -> Callable[[object], Vote]:
    return lambda _: vote


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90.0),
        ("1h30m", 5400.0),
        ("1.5h", 5400.0),
        ("100ms", 0.1),
        ("soon", None),
        ("5", None),
        ("", None),
    ],
)
def test_durations_as_go_writes_them(text: str, seconds: float | None) -> None:
    """Sums of numbers with units; anything else is none."""
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(("cooldown", "count"), [("600s", 0), ("6s", 1), ("long", 1)])
def test_cooldown_spares_what_has_just_started(cooldown: str, count: int) -> None:
    """A task that runs for less than its role's cooldown is not evicted."""
    state = read(
        """
        nodes  n1: gpu=1
        queue  q:
        job    q/low: 1 x gpu=1 running n1 phase=Running
        job    q/high: 1 x gpu=1 priority=1 phase=Inqueue
    """,
        now=100.0,
    )
    low = state.jobs[0]
    role = replace(low.roles[0], annotations={"volcano.sh/cooldown-time": cooldown})
    state = replace(state, jobs=(replace(low, roles=(role,)), state.jobs[1]))

    outcome = cycle(state, config=config("priority", "cdp", actions="preempt"))

    assert len(outcome.evicted) == count


RULES = (
    '{"affinity": {"required": ["g1"], "preferred": ["g2"]}, "anti_affinity": {"required": ["g3"]}}'
)


def test_nodegroup_filters_and_scores_by_the_queues_rules() -> None:
    """Required groups come before preferred ones; others, and nodes outside, are not used."""
    state = read("""
        nodes  n1: cpu=1 label.volcano.sh/nodegroup-name=g1
        nodes  n2: cpu=2 label.volcano.sh/nodegroup-name=g2
        nodes  n3: cpu=9 label.volcano.sh/nodegroup-name=g3
        nodes  n4: cpu=9
        queue  q:
        job    q/j: 4 x cpu=1 min=1
    """)
    ruled = replace(state.queues[0], annotations={"terrace/node-group-affinity": RULES})

    outcome = cycle(replace(state, queues=(ruled,)), config=config("gang", "nodegroup"))

    assert outcome.binds == {"q/j-0": "n1", "q/j-1": "n2", "q/j-2": "n2"}


@pytest.mark.parametrize(("limit", "count"), [('{"g1": {"cpu": 2000}}', 2), ("broken", 0)])
def test_nodegroup_limit_is_booked_task_by_task(limit: str, count: int) -> None:
    """Two cores of a group are the queue's limit; a text that cannot be read lets nothing in."""
    state = read("""
        nodes  n1: cpu=9 label.volcano.sh/nodegroup-name=g1
        queue  q:
        job    q/j: 4 x cpu=1 min=1
    """)
    annotations = {
        "terrace/node-group-affinity": RULES,
        "volcano.sh/nodegroup-resource-limits": limit,
    }
    ruled = replace(state.queues[0], annotations=annotations)

    outcome = cycle(replace(state, queues=(ruled,)), config=config("gang", "nodegroup"))

    assert len(outcome.binds) == count


def loaded(name: str, cpu: int, *, age: float = 0.0) -> Node:
    """Return a node with a measured load."""
    node = read(f"nodes {name}: cpu=8").nodes[0]
    return replace(
        node,
        annotations={
            "terrace/usage-cpu-percent": str(cpu),
            "terrace/usage-memory-percent": "10",
            "terrace/usage-measured-at": str(1000.0 - age),
        },
    )


def test_usage_keeps_off_busy_nodes_and_prefers_idle_ones() -> None:
    """Above the threshold nothing is placed; below it the idler node is taken."""
    state = read("queue q:\njob q/j: 1 x cpu=1")
    nodes = (loaded("a", 90), loaded("b", 60), loaded("c", 20))

    outcome = cycle(replace(state, nodes=nodes), config=config("gang", "usage"))

    assert outcome.binds == {"q/j-0": "c"}


def test_usage_ignores_a_stale_measurement() -> None:
    """A load measured long ago neither blocks nor recommends a node."""
    state = read("queue q:\njob q/j: 1 x cpu=1")

    outcome = cycle(
        replace(state, nodes=(loaded("a", 90, age=900),)), config=config("gang", "usage")
    )

    assert outcome.binds == {"q/j-0": "a"}


def test_resource_strategy_spares_nodes_with_scarce_devices() -> None:
    """A task without GPUs goes where there are none, whatever is idle there."""
    plugin = PluginConfig(
        "resource-strategy-fit",
        {
            "resources": '{"cpu": {"type": "MostAllocated", "weight": 1}}',
            "sra": '{"enable": true, "resources": "nvidia.com/gpu", "weight": 100}',
        },
    )

    outcome = cycle(
        "nodes a: cpu=8 gpu=1\nnodes b: cpu=9\nqueue q:\njob q/j: 1 x cpu=1", config=config(plugin)
    )

    assert outcome.binds == {"q/j-0": "b"}


def test_drf_evicts_only_from_the_larger_share() -> None:
    """Two of three GPUs are held by one job: it gives one up to a job that holds none."""
    outcome = cycle(
        """
        nodes  n1: gpu=2
        queue  q:
        job    q/old: 2 x gpu=1 min=0 running n1*2 phase=Running
        job    q/new: 1 x gpu=1 phase=Inqueue
    """,
        config=config("gang", "drf", actions="preempt"),
    )

    assert outcome.evicted == ["q/old-1"]
