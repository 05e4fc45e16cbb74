"""The verifier rejects every kind of planted fault, and names it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from scheduling.engine.cycle import DEFAULT_CONFIG, plan
from scheduling.engine.reasons import ReasonCode
from scheduling.engine.types import (
    CPU,
    GPU,
    ActionConfig,
    Binding,
    Config,
    Device,
    DisruptionBudget,
    Eviction,
    HyperNode,
    NumaNode,
    Pipelined,
    Plan,
    PluginConfig,
    PodTerm,
    Reason,
    Requirement,
    Reservation,
    Role,
    Snapshot,
    SpreadRule,
    StorageClass,
    SubGroupPolicy,
    TopologyMode,
    TopologyRule,
    Volume,
    VolumeClaim,
)
from scheduling.engine.verify import check
from tests.scenarios import read

CLUSTER = """
    nodes  n1: gpu=4 devices bad3 label.zone=a
    nodes  n2: gpu=2 taint.only=x
    nodes  n3: gpu=2 cordoned
    queue  org: max.gpu=6
    queue  a: parent=org
    queue  b: parent=org min.gpu=1
    queue  shut: state=Closed
    job    a/gang: 2 x gpu=1
    job    a/zone: 1 x gpu=1 select.zone=a priority=-1
    job    b/run: 2 x gpu=1 min=1 running n2*2 phase=Running
    job    a/fix: 1 x gpu=1 preemptable=no running n1 phase=Running
    job    shut/x: 1 x gpu=1
"""


def bind(task: str, node: str, *devices: str) -> Binding:
    return Binding(task, task.rpartition("-")[0], node, devices)


def evict(task: str, node: str, beneficiary: str = "a/gang") -> Eviction:
    return Eviction(task, task.rpartition("-")[0], node, "reclaim", beneficiary)


def with_binds(*binds: Binding) -> Callable[[Plan], Plan]:
    return lambda good: replace(good, binds=(*good.binds, *binds))


def only_binds(*binds: Binding) -> Callable[[Plan], Plan]:
    return lambda good: replace(good, binds=binds)


def with_evictions(*evictions: Eviction) -> Callable[[Plan], Plan]:
    return lambda good: replace(good, evictions=evictions)


FAULTS: dict[str, Callable[[Plan], Plan]] = {
    "bound_twice": lambda good: replace(good, binds=(*good.binds, good.binds[0])),
    "unknown_task": with_binds(bind("a/none-0", "n1")),
    "not_pending": with_binds(bind("b/run-0", "n2")),
    "unknown_node": only_binds(bind("a/zone-0", "n9")),
    "unfit_node": only_binds(bind("a/gang-0", "n2"), bind("a/gang-1", "n2")),
    "node_overfull": only_binds(
        bind("a/gang-0", "n1", "n1-gpu0"),
        bind("a/gang-1", "n1", "n1-gpu1"),
        bind("a/zone-0", "n1", "n1-gpu2"),
        bind("shut/x-0", "n1", "n1-gpu2"),
    ),
    "queue_not_open": with_binds(bind("shut/x-0", "n1", "n1-gpu2")),
    "gang_incomplete": only_binds(bind("a/gang-0", "n1", "n1-gpu0")),
    "bad_device": only_binds(bind("a/zone-0", "n1", "n1-gpu3")),
    "device_count": only_binds(bind("a/zone-0", "n1")),
    "device_taken": only_binds(
        bind("a/gang-0", "n1", "n1-gpu0"), bind("a/gang-1", "n1", "n1-gpu0")
    ),
    "evicted_twice": with_evictions(evict("b/run-1", "n2"), evict("b/run-1", "n2")),
    "not_live": with_evictions(evict("b/run-1", "n1")),
    "not_preemptable": with_evictions(evict("a/fix-0", "n1")),
    "useless_eviction": with_evictions(evict("b/run-1", "n2", "shut/x")),
    "queue_under_min": with_evictions(evict("b/run-0", "n2"), evict("b/run-1", "n2")),
    "promise_too_large": lambda good: replace(
        good,
        pipelined=(Pipelined("shut/x-0", "shut/x", "n1"), Pipelined("a/zone-0", "a/zone", "n1")),
    ),
    "useless_reservation": lambda good: replace(
        good, reservations=(Reservation("b/run", {"n1": {}}, 1e9),)
    ),
    "expired_reservation": lambda good: replace(
        good, reservations=(Reservation("shut/x", {"n1": {}}, 1.0),)
    ),
    "no_reason": lambda good: replace(good, job_reasons={}),
}


def snapshot() -> Snapshot:
    return read(CLUSTER)


def test_plan_of_the_engine_is_accepted() -> None:
    """The plan into which faults are planted has none itself."""
    state = snapshot()

    assert check(state, plan(state, DEFAULT_CONFIG)) == []


@pytest.mark.parametrize("code", sorted(FAULTS))
def test_planted_fault_is_named(code: str) -> None:
    """Each fault is found under its own code."""
    state = snapshot()
    faulty = FAULTS[code](plan(state, DEFAULT_CONFIG))

    assert code in {violation.code for violation in check(state, faulty)}


def test_max_of_an_ancestor_is_checked() -> None:
    """Six of six GPUs are held in the department: one more is too many."""
    state = read(CLUSTER.replace("max.gpu=6", "max.gpu=3"))
    faulty = replace(Plan(), binds=(bind("a/zone-0", "n1", "n1-gpu0"),))

    assert "queue_over_max" in {violation.code for violation in check(state, faulty)}


def test_broken_gang_is_found() -> None:
    """Evicting one of two tasks that are the gang's minimum leaves a broken gang."""
    state = read("nodes n1: gpu=2\nqueue a:\njob a/x: 2 x gpu=1 running n1*2\njob a/y: 1 x gpu=1")
    faulty = Plan(evictions=(evict("a/x-1", "n1", "a/y"),))

    assert "gang_broken" in {violation.code for violation in check(state, faulty)}


# -- rules -----------------------------------------------------------------------------------------

WORLD = """
    nodes  n1 n2: cpu=4 label.zone=z1
    nodes  n3: cpu=4 label.zone=z2 label.volcano.sh/revocable-zone=night
    queue  q:
    queue  r:
    job    q/old: 2 x cpu=1 min=1 running n1*2 phase=Running
    job    q/new: 2 x cpu=1 min=1
    job    r/new: 1 x cpu=1
"""


def world(**changes: object) -> Snapshot:
    """Return two running tasks labelled app=old and two waiting ones, app=new, with rules."""
    state = read(WORLD)
    old, new, other = state.jobs

    def labelled(role: Role, label: str, extra: dict[str, object]) -> Role:
        return replace(role, labels={"app": label}, **extra)  # type: ignore[arg-type]

    jobs = (
        replace(old, roles=tuple(labelled(r, "old", {}) for r in old.roles)),
        replace(new, roles=tuple(labelled(r, "new", changes) for r in new.roles)),
        other,
    )
    return replace(state, jobs=jobs)


WAITING = dict.fromkeys(("q/new", "r/new"), Reason(ReasonCode.NOT_CONSIDERED))


def binds(*nodes: str, cpus: tuple[int, ...] = ()) -> Plan:
    """Return a plan that binds the new tasks to nodes in order."""
    return Plan(
        binds=tuple(
            Binding(f"q/new-{i}", "q/new", node, cpus=cpus) for i, node in enumerate(nodes)
        ),
        job_reasons=WAITING,
    )


def of_app(value: str) -> tuple[Requirement, ...]:
    """Return the selector of a label."""
    return (Requirement("app", "In", (value,)),)


def anti(value: str) -> PodTerm:
    """Return the wish not to share a zone."""
    return PodTerm(of_app(value), "zone", is_anti=True)


def in_domains(state: Snapshot) -> Snapshot:
    """Return the state with two switches, n1 below one and n2 and n3 below the other."""
    left = HyperNode("s1", 1, nodes=frozenset({"n1"}))
    right = HyperNode("s2", 1, nodes=frozenset({"n2", "n3"}))
    return replace(state, hypernodes=(left, right))


def with_rule(state: Snapshot) -> Snapshot:
    """Return the state whose new job must lie below one switch."""
    old, new, other = in_domains(state).jobs
    rule = TopologyRule(TopologyMode.HARD, 1)
    return replace(in_domains(state), jobs=(old, replace(new, topology=rule), other))


def with_sub_groups(state: Snapshot) -> Snapshot:
    """Return the state whose new job is one sub-group that must lie below one switch."""
    old, new, other = in_domains(state).jobs
    policy = SubGroupPolicy("p", ("app",), 1, 1, TopologyRule(TopologyMode.HARD, 1))
    return replace(in_domains(state), jobs=(old, replace(new, sub_groups=(policy,)), other))


def with_numa(policy: str) -> Snapshot:
    """Return the state where machines tell their CPUs and the old tasks hold one each."""
    state = world(topology_policy=policy, request={CPU: 2000})
    numa = (NumaNode(0, (0, 1)), NumaNode(1, (2, 3)))
    old, new, other = state.jobs
    tasks = tuple(replace(t, cpus=(i,)) for i, t in enumerate(old.tasks))
    return replace(
        state,
        nodes=tuple(replace(n, numa=numa, numa_policy="any") for n in state.nodes),
        jobs=(replace(old, tasks=tasks), new, other),
    )


CLAIM = VolumeClaim("q/data", "c", 1)
BOUND = replace(CLAIM, volume="v")
LOCAL = Volume("v", "c", 1, ((Requirement("zone", "In", ("z2",)),),))

GONE = Plan(
    evictions=(
        Eviction("q/old-1", "q/old", "n1", "preempt", "q/new"),
        Eviction("q/old-0", "q/old", "n1", "preempt", "q/new"),
    ),
    pipelined=(Pipelined("q/new-0", "q/new", "n1"),),
    job_reasons=WAITING,
)

RULES: dict[str, tuple[Snapshot, Plan]] = {
    "wrong_queue": (
        world(),
        replace(GONE, evictions=(replace(GONE.evictions[0], action="reclaim"),)),
    ),
    "unwelcome": (world(pod_terms=(anti("old"),)), binds("n2")),
    "alone": (world(pod_terms=(replace(anti("old"), is_anti=False),)), binds("n3")),
    "uneven": (world(spread=(SpreadRule(1, "zone", of_app("new")),)), binds("n1", "n2")),
    "port_taken": (world(ports=(80,)), binds("n1", "n1")),
    "claim_apart": (world(device_claims=("q/c",)), binds("n1", "n2")),
    "no_volume": (world(volume_claims=("q/data",)), binds("n1")),
    "volume_out_of_reach": (
        replace(world(volume_claims=("q/data",)), volume_claims=(BOUND,), volumes=(LOCAL,)),
        binds("n1"),
    ),
    "outside_domain": (with_rule(world()), binds("n1", "n2")),
    "cpu_taken": (with_numa("none"), binds("n1", cpus=(1, 2))),
    "cpu_count": (with_numa("none"), binds("n2", cpus=(1,))),
    "numa_crossed": (with_numa("single-numa-node"), binds("n2", cpus=(1, 2))),
    "over_budget": (
        replace(world(), disruption_budgets=(DisruptionBudget("b", {"app": "old"}, 1),)),
        GONE,
    ),
}


@pytest.mark.parametrize("code", sorted(RULES))
def test_a_broken_rule_is_named(code: str) -> None:
    """Each rule about neighbours, domains, volumes, CPUs and budgets has a code of its own."""
    state, faulty = RULES[code]

    assert {v.code for v in check(state, faulty)} - {"gang_broken"} == {code}


@pytest.mark.parametrize("code", sorted(RULES))
def test_the_engine_breaks_no_rule(code: str) -> None:
    """What the engine plans on the same state is accepted."""
    state, _ = RULES[code]

    assert check(state, plan(state, DEFAULT_CONFIG)) == []


def test_a_sub_group_apart_is_named() -> None:
    """The sub-group is named as well."""
    found = check(with_sub_groups(world()), binds("n1", "n2"))

    assert [(v.code, v.params) for v in found] == [("outside_domain", {"group": "p-new"})]


def test_rules_bind_only_where_their_plugin_is_named() -> None:
    """Without the plugins neither neighbours nor domains nor CPUs are looked at."""
    config = Config((ActionConfig("allocate"),), ((PluginConfig("gang"),),))

    for code in set(RULES) - {"wrong_queue"}:
        state, faulty = RULES[code]
        assert {v.code for v in check(state, faulty, config)} <= {"gang_broken"}


@pytest.mark.parametrize(
    ("window", "codes"), [("23:00-01:00", set()), ("02:00-03:00", {"zone_closed"})]
)
def test_revocable_nodes_are_used_in_their_hours(window: str, codes: set[str]) -> None:
    """At sixteen minutes past midnight, by a role that accepts them."""
    state = world(annotations={"volcano.sh/revocable-zone": "*"})
    tdm = PluginConfig("tdm", {"tdm.revocable-zone.night": window})
    config = replace(DEFAULT_CONFIG, tiers=(*DEFAULT_CONFIG.tiers, (tdm,)))

    assert {v.code for v in check(state, binds("n3"), config)} == codes
    assert check(state, plan(state, config), config) == []


def test_a_waiting_claim_of_a_class_that_waits_for_nobody_is_found() -> None:
    """Its volume must come first."""
    kinds = (StorageClass("c", waits_for_consumer=False),)
    state = replace(world(volume_claims=("q/data",)), volume_claims=(CLAIM,), storage_classes=kinds)

    assert {v.code for v in check(state, binds("n1"))} == {"no_volume"}


def test_parts_of_a_device_beyond_its_memory_are_found() -> None:
    """Two tasks of 60 percent on one device."""
    state = world(
        request={
            CPU: 1000,
            "volcano.sh/vgpu-number": 1000,
            "volcano.sh/vgpu-memory-percentage": 60_000,
        }
    )
    device = Device("d", 0, memory_bytes=2**30, model="A100")
    state = replace(state, nodes=tuple(replace(n, devices=(device,)) for n in state.nodes))
    faulty = binds("n1", "n1")
    faulty = replace(faulty, binds=tuple(replace(b, devices=("d",)) for b in faulty.binds))

    assert {v.code for v in check(state, faulty)} == {"device_taken"}


def test_a_device_of_another_model_is_found() -> None:
    """The role asks for an H100."""
    state = world(request={CPU: 1000, GPU: 1000}, annotations={"nvidia.com/use-gputype": "H100"})
    device = Device("d", 0, model="A100")
    state = replace(
        state,
        nodes=tuple(
            replace(n, allocatable={**n.allocatable, GPU: 1000}, devices=(device,))
            for n in state.nodes
        ),
    )
    faulty = binds("n1")
    faulty = replace(faulty, binds=(replace(faulty.binds[0], devices=("d",)),))

    assert {v.code for v in check(state, faulty)} == {"unwanted_device"}


@pytest.mark.parametrize(("state", "codes"), [("running", ["promise_over_max"]), ("releasing", [])])
def test_a_promise_beyond_the_max_is_rejected(state: str, codes: list[str]) -> None:
    """What runs counts against the max, what is ending does not."""
    snapshot = read(f"""
        nodes  n1: gpu=4
        queue  org: max.gpu=2
        queue  q: parent=org
        job    q/old: 2 x gpu=1 {state} n1*2 phase=Running
        job    q/new: 1 x gpu=1
    """)
    promised = replace(
        plan(snapshot, DEFAULT_CONFIG), pipelined=(Pipelined("q/new-0", "q/new", "n1"),)
    )

    assert [v.code for v in check(snapshot, promised)] == codes


def test_who_came_first_needs_no_neighbour_that_came_later() -> None:
    """The first of its kind may stand alone, even if another of the kind starts elsewhere later."""
    state = world(pod_terms=(replace(anti("new"), is_anti=False),))
    early = binds("n1", "n2")
    late = replace(early, binds=(early.binds[0], replace(early.binds[1], node="n3")))

    assert check(state, early) == []
    assert [v.code for v in check(state, late)] == ["alone"]


def with_job(state: Snapshot, **changes: object) -> Snapshot:
    """Return the state with one thing about the waiting job of two tasks changed."""
    old, new, other = state.jobs
    return replace(state, jobs=(old, replace(new, **changes), other))  # type: ignore[arg-type]


def held_off(state: Snapshot) -> Snapshot:
    """Return the state whose waiting tasks must not be retried yet."""
    tasks = tuple(replace(t, not_before=state.now + 60) for t in state.jobs[1].tasks)
    return with_job(state, tasks=tasks)


KEPT = Reservation("r/new", {"n2": {CPU: 4000}}, 1e9)

BARRED: dict[str, Snapshot] = {
    "back_off": held_off(world()),
    "not_runnable": with_job(world(), is_runnable=False),
    "queue_not_leaf": with_job(
        read(WORLD.replace("queue  r:", "queue  r: parent=p\nqueue p:")), queue="p"
    ),
    "unknown_queue": with_job(world(), queue="gone"),
    "room_reserved": replace(world(), reservations=(KEPT,)),
}


@pytest.mark.parametrize("code", sorted(BARRED))
def test_a_start_of_who_must_wait_is_named(code: str) -> None:
    """Who may not run, has no queue of its own, or takes what is kept for another."""
    state = BARRED[code]
    faulty = replace(binds("n2"), reservations=state.reservations)

    assert {v.code for v in check(state, faulty)} == {code}
    assert check(state, plan(state, DEFAULT_CONFIG)) == []
