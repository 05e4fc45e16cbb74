"""What plugins read of the snapshot is written by agents, specs and pages: from row to decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from scheduling.domain import apply_plan, node_marks, queue_placement, reports
from scheduling.domain.deeds import Deed
from scheduling.engine import cycle
from scheduling.engine.config import parse_config
from scheduling.models import Cluster, ImageRule, Job, Node, Queue, Reservation
from scheduling.spec.job_spec import NetworkTopology, PartitionPolicy, Toleration
from tests.factories.cluster import GIB, Site, TestNode, fresh, make_site, role
from tests.people import NOW, make_queue, make_unit
from worker.gateway import translation
from worker.protocol import RuntimeInfo

Amounts = Mapping[str, int]
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def site() -> Site:
    return make_site()


def carry_out(site: Site, config: str) -> apply_plan.Applied:
    """Run one cycle by another configuration than the default one."""
    parsed = parse_config(config)
    assert parsed.config is not None
    assert parsed.problems == ()
    snapshot = site.cache.refresh(site.cluster.id, site.now)
    return apply_plan.apply(
        cycle.plan(snapshot, parsed.config),
        cluster_id=site.cluster.id,
        scope=site.scope,
        epoch=site.epoch,
        snapshot=snapshot,
        now=site.now,
    )


def places(site: Site, job: Job) -> list[str]:
    return [attempt.node.name for attempt in site.live(job)]


# --- admission ------------------------------------------------------------------------------------

LAPSING = """
actions: "enqueue, allocate"
configurations:
- name: enqueue
  arguments: {lapseSeconds: 60}
tiers:
- plugins:
  - {name: gang}
  - {name: overcommit, arguments: {overcommit-factor: "1.0"}}
  - {name: predicates}
"""


def test_an_admission_that_was_not_used_for_a_minute_lapses(site: Site) -> None:
    """A job that fits no node makes way for one that asks for the first time."""
    site.node(cpu_milli=4000)
    stuck = site.submit(role(cpu_milli=3000, node_selector={"zone": "none"}))
    carry_out(site, LAPSING)
    site.later(59)
    newcomer = site.submit(role(cpu_milli=2000))

    carry_out(site, LAPSING)
    at_first = (fresh(stuck).gang_phase, fresh(newcomer).gang_phase)
    site.later(2)
    carry_out(site, LAPSING)

    assert at_first == ("Inqueue", "Pending")
    assert (fresh(stuck).gang_phase, fresh(newcomer).gang_phase) == ("Pending", "Running")


def test_an_admission_that_is_renewed_counts_from_then(site: Site) -> None:
    """Alone in the queue a job is let in again, and not once more in the next cycle."""
    site.node(cpu_milli=4000)
    stuck = site.submit(role(cpu_milli=3000, node_selector={"zone": "none"}))
    carry_out(site, LAPSING)
    first = fresh(stuck).admitted_at

    site.later(61)
    carry_out(site, LAPSING)
    second = fresh(stuck).admitted_at
    site.later(1)
    carry_out(site, LAPSING)

    assert fresh(stuck).admitted_at == second == site.now - timedelta(seconds=1)
    assert first == site.now - timedelta(seconds=62)


def test_who_ends_in_time_uses_room_that_is_kept(site: Site) -> None:
    """When the job for which room is kept can start is known in later cycles too."""
    site.node(cpu_milli=4000)
    site.started(role(cpu_milli=3000), time_limit_seconds=600.0)
    large = site.submit(role(cpu_milli=3500), sla_waiting_seconds=1.0)
    site.later(2)
    site.cycle()
    kept = Reservation.objects.get(job=large)
    site.later(1)

    long = site.submit(role(cpu_milli=500), time_limit_seconds=3600.0)
    short = site.submit(role(cpu_milli=500), time_limit_seconds=60.0)
    site.cycle()

    assert kept.starts_at == NOW + timedelta(seconds=600)
    assert Reservation.objects.get(job=large).starts_at == kept.starts_at
    assert (len(places(site, long)), len(places(site, short))) == (0, 1)


# --- what a job says of itself --------------------------------------------------------------------

CROWDED = """
actions: "enqueue, allocate"
tiers:
- plugins:
  - {name: gang}
  - {name: overcommit, arguments: {overcommit-factor: "1.0"}}
  - {name: predicates}
"""


def test_admission_counts_the_minimum_of_a_job(site: Site) -> None:
    """Two of five tasks have to fit: a job of which they do is let in, a larger one is not."""
    site.node(cpu_milli=4000)
    elastic = site.submit(role(replicas=5, min_available=2, cpu_milli=1500))
    site.later(1)
    large = site.submit(role(replicas=3, cpu_milli=1500))

    carry_out(site, CROWDED)

    assert (fresh(elastic).gang_phase, fresh(large).gang_phase) == ("Running", "Pending")
    assert fresh(large).reason_code == "admission_refused"


def test_partitions_lie_each_in_a_rack_of_its_own(site: Site) -> None:
    """A role of two partitions of two tasks: each partition is whole, in one domain."""
    Cluster.objects.filter(id=site.cluster.id).update(
        network_tiers=[{"name": "rack", "label": "rack"}]
    )
    racks = {}
    for rack in ("r1", "r1", "r2", "r2", "r3"):
        node = site.node(cpu_milli=4000)
        Node.objects.filter(id=node.id).update(labels={"rack": rack})
        racks[node.name] = rack
    topology = NetworkTopology(mode="hard", highest_tier_allowed=1)
    policy = PartitionPolicy(
        total_partitions=2, partition_size=2, min_partitions=2, network_topology=topology
    )

    job = site.submit(role(replicas=4, cpu_milli=3000, partition_policy=policy))
    site.cycle()

    found = [racks[name] for name in places(site, job)]
    assert sorted((found[:2], found[2:])) == [["r1", "r1"], ["r2", "r2"]]


def test_of_partitions_as_many_start_as_are_needed_and_no_half_one(site: Site) -> None:
    """Room for three tasks, and one partition of two is needed: the third task may grow later."""
    site.node(cpu_milli=3500)
    policy = PartitionPolicy(total_partitions=2, partition_size=2, min_partitions=1)
    job = site.submit(role(replicas=4, min_available=2, partition_policy=policy))
    too_large = site.submit(
        role(
            replicas=6,
            min_available=6,
            partition_policy=PartitionPolicy(
                total_partitions=2, partition_size=3, min_partitions=2
            ),
        )
    )

    site.cycle()

    assert [a.task.index for a in site.live(job)][:2] == [0, 1]
    assert places(site, too_large) == []


def test_a_job_that_must_not_evict_waits(site: Site) -> None:
    """Of two urgent jobs the one whose pods have preemptionPolicy Never leaves others alone."""
    site.node(cpu_milli=3000)
    running = site.started(role(cpu_milli=2000))
    template = {"spec": {"preemptionPolicy": "Never", "containers": [{"name": "c"}]}}

    site.submit(role(cpu_milli=2000, template=template), priority=5)
    polite = site.cycle().evictions
    site.submit(role(cpu_milli=2000), priority=4)
    urgent = site.cycle().evictions

    assert (polite, urgent) == (0, 1)
    assert fresh(running).tasks_stopping == 1


def test_a_job_keeps_the_tasks_that_its_budget_demands(site: Site) -> None:
    """Of four elastic tasks urgent gangs get one at a time: only one may be missing."""
    site.node(cpu_milli=4800)
    budget = {"volcano.sh/jdb-max-unavailable": "1"}
    owner = site.started(role(replicas=4, min_available=1), annotations=budget)

    site.submit(role(replicas=2, min_available=2), priority=5)
    for_two = site.cycle().evictions
    site.submit(role(), priority=5)
    for_one = site.cycle().evictions
    again = site.cycle().evictions

    assert (for_two, for_one, again) == (0, 1, 0)
    assert fresh(owner).tasks_running == 3


# --- what is stated about queues ------------------------------------------------------------------

BY_GROUP = """
actions: "allocate"
tiers:
- plugins:
  - {name: gang}
  - {name: predicates}
  - {name: nodegroup, enableHierarchy: true}
"""


def state(site: Site, queue: Queue, *, deserved: Amounts | None = None, **groups: Any) -> None:
    queue_placement.edit(
        deed=Deed(site.admin, site.now),
        queue_id=queue.id,
        node_groups=queue_placement.NodeGroups(**groups),
        stated_deserved=deserved,
        expected_version=Queue.objects.get(id=queue.id).version,
    )


def test_jobs_run_on_the_groups_of_nodes_of_their_queue(site: Site) -> None:
    """The queue names a group, and how much it may hold there; labels of nodes make the groups."""
    groups = {}
    for group in ("fast", "slow", "slow"):
        node = site.node(cpu_milli=8000)
        Node.objects.filter(id=node.id).update(labels={"volcano.sh/nodegroup-name": group})
        groups[node.name] = group
    state(site, site.queue, required=("fast",), limits={"fast": {"cpu": 3000}})

    jobs = [site.submit() for _ in range(4)]
    carry_out(site, BY_GROUP)
    limited = sorted(groups[name] for job in jobs for name in places(site, job))
    state(site, site.queue, avoided=("slow",))
    carry_out(site, BY_GROUP)

    assert limited == ["fast"] * 3
    assert sorted(groups[name] for job in jobs for name in places(site, job)) == [*limited, "slow"]


BY_CAPACITY = """
actions: "allocate, reclaim"
tiers:
- plugins:
  - {name: gang}
- plugins:
  - {name: capacity}
  - {name: predicates}
"""


def test_a_queue_takes_back_what_it_is_stated_to_deserve(site: Site) -> None:
    """Of four cores the idle queue is stated one: one elastic task of the other makes room."""
    site.node(cpu_milli=4400)
    other = make_queue(site.cluster, "other", site.root, make_unit("other"))
    holder = site.started(role(replicas=4, min_available=0))
    claimant = site.submit(role(replicas=2, min_available=1), queue=other)

    state(site, site.queue, deserved={"cpu": 3000})
    unstated = carry_out(site, BY_CAPACITY).evictions
    state(site, other, deserved={"cpu": 1000})
    stated = carry_out(site, BY_CAPACITY).evictions

    assert (unstated, stated) == (0, 1)
    assert fresh(holder).tasks_stopping == 1
    assert fresh(claimant).tasks_running == 0


# --- what nodes have ------------------------------------------------------------------------------


def test_a_task_goes_to_the_node_that_holds_its_data(site: Site) -> None:
    """The labels of the node name the data sets, an annotation of the role what it reads."""
    site.node(), site.node(), site.node()
    holder = site.node()
    Node.objects.filter(id=holder.id).update(labels={"data.terrace.dev/imagenet": "true"})
    reader = site.submit(role(annotations={"terrace.dev/data-sets": "imagenet, c4"}))
    of_job = site.submit(role(), annotations={"terrace.dev/data-sets": "imagenet"})

    site.cycle()

    assert places(site, reader) == places(site, of_job) == [holder.name]


def test_a_taint_keeps_off_who_does_not_tolerate_it(site: Site) -> None:
    """Labels and taints that an administrator wrote decide in the next cycle."""
    lent, other = site.node(), site.node()
    node_marks.edit(
        deed=Deed(site.admin, site.now),
        node_id=lent.id,
        labels={"rack": "r1"},
        taints=[node_marks.Taint("team", "vision")],
        expected_version=Node.objects.get(id=lent.id).version,
    )

    plain = site.submit()
    kept_off = site.submit(role(node_selector={"rack": "r1"}))
    tolerant = site.submit(
        role(node_selector={"rack": "r1"}, tolerations=[Toleration(key="team", value="vision")])
    )
    site.cycle()

    assert places(site, plain) == [other.name]
    assert places(site, kept_off) == []
    assert places(site, tolerant) == [lent.name]


BY_IMAGE = """
actions: "allocate"
tiers:
- plugins:
  - {name: gang}
  - {name: predicates}
  - {name: nodeorder, arguments: {imagelocality.weight: 10}}
"""


def test_a_task_goes_to_the_node_whose_cache_holds_its_image(site: Site) -> None:
    """From the agent's first words on the wire to the place: a busier node, but with the image."""
    runtime = RuntimeInfo("enroot", "wrapper")
    cached = replace(runtime, images={"nvidia+pytorch+24.01": 4 * GIB})
    nodes = [
        site.node(runtimes=translation.runtimes(one)) for one in ([runtime], [cached], [runtime])
    ]
    ImageRule.objects.create(
        cluster=site.cluster, position=1, pattern="nvcr.io/*", runtime="enroot"
    )
    Node.objects.exclude(id=nodes[1].id).update(is_cordoned=True)
    busy = site.started(role(replicas=8, runtime="enroot"))
    Node.objects.update(is_cordoned=False)

    job = site.submit(role(image="nvcr.io/nvidia/pytorch:24.01"))
    carry_out(site, BY_IMAGE)

    assert set(places(site, busy)) == {nodes[1].name}
    assert places(site, job) == [nodes[1].name]


BY_LOAD = """
actions: "allocate"
tiers:
- plugins:
  - {name: gang}
  - {name: predicates}
  - {name: usage, arguments: {thresholds: '{"cpu": 80, "mem": 80}'}}
"""


def measure(site: Site, node: TestNode, *, cpu_milli: int) -> None:
    at = site.now.timestamp()
    sample = reports.UsageReceived(subject="node", at=at, cpu_milli=cpu_milli, memory_bytes=GIB)
    node.report(site.now, usage=[sample])


def test_tasks_keep_off_a_node_that_is_busy(site: Site) -> None:
    """The agents' measurements decide: a node at 95 % takes nothing, until it has calmed down."""
    busy, calm = site.node(cpu_milli=10_000), site.node(cpu_milli=10_000, memory_bytes=2 * GIB)
    measure(site, busy, cpu_milli=9500)
    measure(site, calm, cpu_milli=100)
    Cluster.objects.filter(id=site.cluster.id).update(scheduler_config=BY_LOAD)
    first, second = site.submit(role(replicas=2)), site.submit(role(memory_bytes=8 * GIB))

    carry_out(site, BY_LOAD)
    while_busy = [places(site, first), places(site, second)]
    site.later(121)
    measure(site, busy, cpu_milli=100)
    measure(site, calm, cpu_milli=100)
    carry_out(site, BY_LOAD)

    assert while_busy == [[calm.name, calm.name], []]
    assert places(site, second) == [busy.name]


MOVING = """
actions: "shuffle"
tiers:
- plugins:
  - {name: gang}
  - name: rescheduling
    arguments:
      strategies:
      - name: lowNodeUtilization
        params: {thresholds: {cpu: 20, memory: 20}, targetThresholds: {cpu: 50, memory: 50}}
"""


def test_a_busy_node_gives_elastic_tasks_to_an_idle_one(site: Site) -> None:
    """The agents' measurements withdraw as many as bring the node to its target, and no more."""
    busy = site.node(cpu_milli=10_000)
    elastic = site.started(role(replicas=6, min_available=1))
    idle = site.node(cpu_milli=10_000)
    measure(site, busy, cpu_milli=7000)
    measure(site, idle, cpu_milli=100)
    Cluster.objects.filter(id=site.cluster.id).update(scheduler_config=MOVING)

    moved = carry_out(site, MOVING).evictions

    assert moved == 2  # a fifth of its ten cores, less what is kept for the system
    assert fresh(elastic).tasks_stopping == 2


def test_load_is_read_only_where_a_plugin_looks_at_it(site: Site) -> None:
    """By the default configuration the nodes carry no load, and lose it with the configuration."""
    node = site.node(cpu_milli=10_000)
    measure(site, node, cpu_milli=5000)
    asked = []

    for config in ("", BY_LOAD, ""):
        Cluster.objects.filter(id=site.cluster.id).update(scheduler_config=config)
        (seen,) = site.cache.refresh(site.cluster.id, site.now).nodes
        asked.append(seen.annotations.get("terrace/usage-cpu-percent"))

    assert asked == [None, "50.0", None]
