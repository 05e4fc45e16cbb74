"""A plan leaves nothing to do: planned again at the same instant, nothing is added to it."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from scheduling.engine.after import apply_plan
from scheduling.engine.cycle import DEFAULT_CONFIG, plan
from scheduling.engine.types import ActionConfig, Config, Snapshot
from scheduling.simulator.state import release
from tests.random_clusters import clusters
from tests.scenarios import cycle
from tests.unit.engine.test_eviction_properties import PLUGINS, SHARINGS
from tests.unit.engine.test_properties import examples

USUAL_ORDER = [
    "enqueue",
    "reserve",
    "allocate",
    "preempt",
    "gangpreempt",
    "reclaim",
    "gangreclaim",
    "elastic",
    "backfill",
]


@st.composite
def configs(draw: st.DrawFn) -> Config:
    """Draw plugins in any order and tier, and any of the actions in the usual order.

    Without `shuffle`: what it withdraws follows the clock and the measured load, not the plan.
    """
    names = draw(st.permutations([*draw(st.sets(st.sampled_from(PLUGINS))), "gang", "predicates"]))
    actions = [a for a in USUAL_ORDER if draw(st.booleans())]
    cut = draw(st.integers(0, len(names)))
    default = {p.name: p for tier in DEFAULT_CONFIG.tiers for p in tier}
    known = default | {p.name: p for tier in SHARINGS["capacity"].tiers for p in tier}
    tiers = [tuple(known.get(n, replace(known["gang"], name=n, arguments={})) for n in part)
             for part in (names[:cut], names[cut:]) if part]  # fmt: skip
    return Config(tuple(ActionConfig(name) for name in actions), tuple(tiers))


def leaves_nothing(snapshot: Snapshot, config: Config) -> None:
    """Assert that a plan on what a plan left changes nothing: promises and reservations stand."""
    first = plan(snapshot, config)
    left = apply_plan(snapshot, first)

    again = plan(left, config)

    assert (again.binds, again.evictions) == ((), ())
    assert set(again.pipelined) == set(first.pipelined)
    assert replace(apply_plan(left, again), version=left.version) == left


def later(snapshot: Snapshot, config: Config) -> Snapshot:
    """Return the state a second after a plan: with reservations, and victims that wait again."""
    return replace(release(apply_plan(snapshot, plan(snapshot, config))), now=snapshot.now + 1)


@examples(60)
@given(clusters(), st.integers(0, 2))
def test_a_plan_on_what_a_plan_left_is_empty(snapshot: Snapshot, cycles: int) -> None:
    """By default: whatever the tree, the gangs, their rules, elastic tasks and reservations."""
    for _ in range(cycles):
        snapshot = later(snapshot, DEFAULT_CONFIG)

    leaves_nothing(snapshot, DEFAULT_CONFIG)


@examples(60)
@given(clusters(), configs(), st.integers(0, 1))
def test_a_plan_leaves_nothing_to_do_whatever_is_configured(
    snapshot: Snapshot, config: Config, cycles: int
) -> None:
    """Under any plugins in any tiers, with any of the actions in their usual order."""
    if not {"shares", "proportion", "capacity"} & {p.name for t in config.tiers for p in t}:
        queues = tuple(replace(q, min={}, max={}) for q in snapshot.queues)  # nobody keeps to them
        snapshot = replace(snapshot, queues=queues)
    for _ in range(cycles):
        snapshot = later(snapshot, config)

    leaves_nothing(snapshot, config)


def test_who_grew_gives_way_in_the_same_cycle() -> None:
    """A task that its job can spare once it has grown never starts where a gang lacks it."""
    outcome = cycle("""
        nodes  n1: gpu=1 cpu=8
        queue  q:
        job    q/grows: 1 x gpu=1 role=a ; 1 x cpu=1 role=b min=1
        job    q/waits: 1 x gpu=1 cpu=1
    """)

    assert outcome.binds == {"q/grows-b-0": "n1", "q/waits-0": "n1"}
    assert outcome.evicted == []


def test_who_is_promised_free_room_starts() -> None:
    """What the victims of one gang leave over starts another at once, where it is free already."""
    outcome = cycle("""
        nodes  n1: gpu=2
        nodes  n2: gpu=3
        queue  q:
        job    q/held: 2 x gpu=2 min=1 running n1 n2 phase=Running
        job    q/pair: 1 x gpu=1 role=a ; 1 x gpu=2 role=b min=2
        job    q/small: 1 x gpu=1 created=5
    """)

    after = cycle(apply_plan(outcome.snapshot, outcome.plan))

    assert (after.binds, after.evicted) == ({}, [])


def test_an_eviction_that_a_later_one_makes_needless_is_spared() -> None:
    """A gang that goes whole leaves enough for two: the first victim stays."""
    outcome = cycle("""
        nodes  n1: gpu=1
        nodes  n2: gpu=4
        nodes  n3: gpu=1
        queue  a:
        queue  b:
        job    a/wants: 1 x gpu=1 created=1
        job    a/one: 1 x gpu=1 running n1 phase=Running created=0
        job    a/both: 1 x gpu=1 role=a running n2 ; 1 x gpu=2 role=b running n2 min=2 phase=Running
        job    a/grown: 2 x gpu=1 min=1 running n3 n2 phase=Running created=0
        job    b/back: 1 x gpu=2 created=2
    """)

    assert outcome.evicted == ["a/both-a-0", "a/both-b-0"]
    assert (outcome.pipelined("a/wants"), outcome.pipelined("b/back")) == (1, 1)


def test_one_task_that_is_enough_goes_before_a_whole_gang() -> None:
    """Of a job that can spare one task the one goes that gives enough, not first the smallest."""
    outcome = cycle("""
        nodes  n1: gpu=4
        queue  a:
        queue  b:
        job    a/both: 1 x gpu=1 role=a running n1 ; 1 x gpu=2 role=b running n1 min=1 phase=Running
        job    a/other: 1 x gpu=1 running n1 phase=Running
        job    b/back: 1 x gpu=2
    """)

    assert outcome.evicted == ["a/both-b-0"]


def test_who_was_promised_is_promised_the_same_nodes() -> None:
    """A cycle later the gang's tasks are meant for the nodes that they were meant for before."""
    outcome = cycle("""
        nodes  n1: gpu=2
        nodes  n2: gpu=4
        queue  q:
        job    q/held: 3 x gpu=2 min=1 running n1 n2*2 phase=Running
        job    q/pair: 1 x gpu=1 role=a ; 1 x gpu=2 role=b min=2 priority=1
    """)

    after = cycle(apply_plan(outcome.snapshot, outcome.plan))

    assert outcome.pipelined("q/pair") == 2
    assert after.plan.pipelined == outcome.plan.pipelined
    assert after.plan.reservations == outcome.plan.reservations


def test_what_a_gang_that_goes_leaves_over_is_promised_at_once() -> None:
    """A gang of four goes for two; the others' room is not left to the next cycle."""
    outcome = cycle("""
        nodes  n1 n2: gpu=2
        queue  a:
        queue  b:
        job    a/four: 4 x gpu=1 running n1*2 n2*2 phase=Running
        job    b/first: 2 x gpu=1
        job    a/second: 1 x gpu=1
        job    b/third: 1 x gpu=1
    """)

    assert len(outcome.evicted) == 4
    assert [outcome.pipelined(job) for job in ("b/first", "a/second", "b/third")] == [2, 1, 1]


def test_nobody_goes_for_a_job_that_idle_room_can_be_lent_to() -> None:
    """Its queue would pass what it deserves; what it borrows, nobody else can use."""
    outcome = cycle("""
        nodes  n1 n4: gpu=2
        nodes  n2: gpu=4
        nodes  n3: gpu=7
        queue  a:
        queue  b:
        job    a/old: 2 x gpu=2 running n1 n4 phase=Running
        job    a/new: 4 x gpu=1 priority=1
        job    b/old: 1 x gpu=4 running n2 phase=Running
        job    b/large: 1 x gpu=9
    """)

    assert outcome.evicted == []
    assert outcome.bound("a/new") == 4


def test_shares_do_not_sway_while_the_evicted_end() -> None:
    """What is ending is demand as before: it will ask again."""
    scenario = """
        nodes  n1: gpu=4
        queue  a:
        queue  b:
        job    a/one: 4 x gpu=1 min=1 {} phase=Running
        job    b/two: 4 x gpu=1 min=4
    """
    before = cycle(scenario.format("running n1*4"))
    after = cycle(scenario.format("running n1*1 releasing n1*3"))

    assert before.deserved() == after.deserved() == {"a": 2, "b": 2}


def test_a_short_job_grows_in_kept_room_at_once() -> None:
    """All of its tasks that end in time start in one cycle."""
    outcome = cycle("""
        nodes  n1: gpu=4
        queue  q: policy=fifo
        job    q/runs: 2 x gpu=1 running n1*2 phase=Running limit=3000
        job    q/late: 4 x gpu=1 sla=10 created=0
        job    q/short: 2 x gpu=1 min=1 limit=100 created=5
    """)

    assert outcome.bound("q/short") == 2


def test_a_role_that_never_fits_keeps_no_other_from_idle_room() -> None:
    """The large task stands before a max; the small one only before its queue's share."""
    outcome = cycle("""
        nodes  n1: gpu=4
        queue  a: max.gpu=3
        queue  b: weight=3
        job    a/grows: 2 x gpu=1 role=small running n1 ; 1 x gpu=4 role=large min=1 phase=Running
        job    b/large: 1 x gpu=8
    """)

    assert outcome.binds == {"a/grows-small-1": "n1"}


def test_a_min_is_kept_even_if_mins_exceed_the_cluster() -> None:
    """Both were promised three of four GPUs: who holds them keeps them."""
    outcome = cycle("""
        nodes  n1: gpu=4
        queue  a: min.gpu=3
        queue  b: min.gpu=3
        job    a/old: 3 x gpu=1 min=1 running n1*3 phase=Running
        job    b/new: 3 x gpu=1 min=1
    """)

    assert outcome.evicted == []
    assert outcome.bound("b/new") == 1


def test_a_start_that_would_be_taken_back_is_not_made() -> None:
    """What would be lent here and claimed at once in the next cycle goes to its owner."""
    outcome = cycle("""
        nodes  n1 n2: gpu=3
        queue  lent:
        queue  owner: min.gpu=2
        job    lent/first: 2 x gpu=2 min=1 priority=1
        job    lent/small: 3 x gpu=1 min=1 created=1
        job    owner/runs: 2 x gpu=1 created=1 running n1*2 phase=Running
        job    owner/late: 1 x gpu=2 created=3
    """)

    assert outcome.binds == {"lent/small-0": "n1", "lent/small-1": "n2", "owner/late-0": "n2"}
    leaves_nothing(outcome.snapshot, DEFAULT_CONFIG)
