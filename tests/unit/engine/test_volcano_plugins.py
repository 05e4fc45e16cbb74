"""The plugins that follow Volcano, against the numbers of its documents, each also switched off."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from scheduling.engine.cycle import open_session
from scheduling.engine.durations import parse_duration
from scheduling.engine.plugins.capacity import Capacity
from scheduling.engine.session import Session, Vote
from scheduling.engine.tables import UNLIMITED
from scheduling.engine.types import (
    CPU,
    GPU,
    MEMORY,
    ActionConfig,
    Config,
    Job,
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
