"""Every field that plugins read is filled in a running system, or is listed with why it is not.

One cluster is furnished by what people and machines do: agents' first words and reports, specs of
jobs, and the functions behind pages and API; no row is written by hand. What each field decides is
tested one by one in `test_snapshot_writers` and `test_shared_devices`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass

import pytest

from scheduling.domain import (
    jobs,
    network_tiers,
    node_marks,
    nodes,
    queue_placement,
    queues,
    quotas,
    reports,
    scheduler_configs,
)
from scheduling.domain.deeds import Deed
from scheduling.domain.placement_rules import Tier
from scheduling.domain.queue_changes import QueueEdit
from scheduling.engine import types as engine
from scheduling.models import Cluster, Job, Node, QuotaResource
from scheduling.spec.job_spec import (
    NetworkTopology,
    PartitionPolicy,
    PolicySpec,
    RoleSpec,
    Toleration,
)
from tenants.domain import org
from tenants.models import OrgUnitKind
from tests.factories.cluster import GIB, Site, make_site, role

pytestmark = pytest.mark.django_db(transaction=True)

READ = (
    engine.Snapshot,
    engine.Node,
    engine.Device,
    engine.NumaNode,
    engine.Taint,
    engine.Queue,
    engine.Job,
    engine.Role,
    engine.Task,
    engine.Toleration,
    engine.Requirement,
    engine.PodTerm,
    engine.SpreadRule,
    engine.TopologyRule,
    engine.SubGroupPolicy,
    engine.HyperNode,
    engine.Reservation,
    engine.DisruptionBudget,
)
"""`Quota` has tests of its own: what is used in other clusters needs several."""

WITHOUT_WRITER = {
    "Snapshot.shard": "a cluster has one scheduler, the holder of its lease",
    "Snapshot.device_classes": "Kubernetes only: agents' devices are chosen by model and name",
    "Snapshot.storage_classes": "Kubernetes only",
    "Snapshot.volumes": "Kubernetes only: storage of jobs is mounted on every node",
    "Snapshot.volume_claims": "Kubernetes only: storage of jobs is mounted on every node",
    "Device.resource": "agents report GPUs, which is the default",
    "Device.driver": "Kubernetes only",
    "Device.attributes": "Kubernetes only",
    "DisruptionBudget.namespace": "its labels name the job and the queue",
    "Job.domain": "where the tasks of a job lie says it",
    "Role.volume_claims": "Kubernetes only: storage of jobs is mounted on every node",
    "Role.device_claims": "Kubernetes only",
    "Task.nominated_node": "Kubernetes only: promises are reservations here",
}
"""Field -> why nobody writes it; take a line out once somebody does."""

BY_LOAD = 'actions: "enqueue, reserve, allocate"\ntiers: [{plugins: [{name: sla}, {name: usage}]}]'


def filled(value: object) -> Iterator[str]:
    """Yield each field of a value, and of those in it, that has another value than its default."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, tuple | frozenset):
        for one in value:
            yield from filled(one)
    if not is_dataclass(value) or isinstance(value, type):
        return
    for one in fields(value):
        found = getattr(value, one.name)
        default = one.default_factory() if one.default_factory is not MISSING else one.default
        if found if default is MISSING else found != default:
            yield f"{type(value).__name__}.{one.name}"
        yield from filled(found)


def furnish_network_and_configuration(site: Site) -> None:
    version = Cluster.objects.get(id=site.cluster.id).version
    who = {"actor": site.admin, "cluster_id": site.cluster.id, "now": site.now}
    tiers = [Tier("rack", "rack"), Tier("hall", "hall")]
    network_tiers.edit(tiers=tiers, expected_version=version, **who)  # type: ignore[arg-type]
    scheduler_configs.edit(text=BY_LOAD, expected_version=version + 1, **who)  # type: ignore[arg-type]


def furnish_nodes(site: Site) -> None:
    cards = [
        nodes.DeviceFacts(
            uuid=f"GPU-{i}",
            index=i,
            model="H100",
            memory_bytes=80 * GIB,
            is_healthy=i < 2,
            numa_node=i % 2,
            links={f"GPU-{1 - i}": "NVLink"} if i < 2 else {},
        )
        for i in range(3)
    ]
    numa = [{"id": 0, "cpus": "0-7"}, {"id": 1, "cpus": "8-15"}]
    runtimes = [{"name": "host", "kind": "host", "images": {"python+3": GIB}}]
    large = site.node(devices=cards, numa_nodes=numa, runtimes=runtimes)
    node_marks.edit(
        deed=Deed(site.admin, site.now),
        node_id=large.id,
        labels={"rack": "r1", "hall": "h1", "data.terrace.dev/c4": "true"},
        taints=[node_marks.Taint("team", "vision", "PreferNoSchedule")],
        expected_version=Node.objects.get(id=large.id).version,
    )
    sample = reports.UsageReceived(
        subject="node", at=site.now.timestamp(), cpu_milli=100, memory_bytes=GIB
    )
    large.report(site.now, usage=[sample])
    nodes.cordon(actor=site.admin, node_id=site.node().id, now=site.now)


def furnish_queues(site: Site) -> None:
    unit = org.create_unit(
        actor=site.admin, parent_id=None, name="other", kind=OrgUnitKind.TENANT, now=site.now
    )
    queue = queues.create_queue(
        actor=site.admin, parent_id=site.root.id, unit_id=unit.id, name="other", now=site.now
    )
    edit = QueueEdit(
        queue_id=queue.id,
        expected_version=queue.version,
        min={"memory": GIB},
        max={"cpu": 64_000},
        weight=3,
        priority=2,
        lend_min=False,
        reclaimable=False,
        policy="fifo",
    )
    queues.edit_queues(actor=site.admin, edits=[edit], now=site.now)
    queue_placement.edit(
        deed=Deed(site.admin, site.now),
        queue_id=queue.id,
        node_groups=queue_placement.NodeGroups(preferred=("fast",)),
        stated_deserved={"cpu": 2000, "memory": GIB},
        expected_version=queue.version + 1,
    )
    queues.close_queue(actor=site.admin, queue_id=queue.id, now=site.now)
    quotas.set_quota(
        actor=site.admin,
        subject=quotas.Subject(unit_id=unit.id),
        limits={QuotaResource.RUNNING_JOBS: 100},
        expected_version=0,
        now=site.now,
    )


def choosy_role() -> RoleSpec:
    """Return a role that says all that a role can say about its place."""
    term = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "rack"}
    wish = {"key": "hall", "operator": "In", "values": ["h1"]}
    spread = {"maxSkew": 2, "topologyKey": "rack", "whenUnsatisfiable": "ScheduleAnyway"}
    return role(
        name="choosy",
        replicas=2,
        min_available=1,
        priority_class="high",
        image="python:3",
        topology_policy="restricted",
        gpu_milli=1000,
        cpu_limit_milli=2000,
        node_selector={"rack": "r1"},
        labels={"app": "web"},
        annotations={"terrace.dev/data-sets": "c4"},
        tolerations=(
            Toleration(key="team", value="vision", effect="NoSchedule"),
            Toleration(key="spot", operator="Exists"),
        ),
        affinity={
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [wish]}]
                },
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 5, "preference": {"matchExpressions": [wish]}}
                ],
            },
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 5, "podAffinityTerm": term}
                ]
            },
        },
        template={
            "spec": {
                "preemptionPolicy": "Never",
                "containers": [{"name": "c", "ports": [{"hostPort": 80}]}],
                "topologySpreadConstraints": [spread],
            }
        },
    )


def furnish_jobs(site: Site) -> None:
    limited = {"time_limit_seconds": 600.0}
    pinned = role(gpu_milli=1000, topology_policy="single-numa-node")
    site.started(pinned, name="pinned", **limited)
    again = PolicySpec(events=("PodFailed",), action="RestartJob")
    failing = site.started(policies=(again,), **limited)
    for _ in range(2):
        site.exited(*site.live(failing), code=1)
        site.later(1)
        site.cycle()
        site.running(*site.live(failing))
    near = NetworkTopology(mode="soft", highest_tier_allowed=2, highest_tier_name="hall")
    site.submit(
        choosy_role(), priority=5, time_limit_seconds=60.0, preemptable=False, network_topology=near
    )
    partitions = PartitionPolicy(
        total_partitions=2, partition_size=2, min_partitions=2, network_topology=near
    )
    site.started(role(replicas=4, partition_policy=partitions), **limited)
    budget = {"volcano.sh/jdb-max-unavailable": "1"}
    site.started(role(cpu_milli=8000), annotations=budget, **limited)


def kept_by_deadline(site: Site) -> engine.Snapshot:
    """Return the cluster once room is kept for a job that has waited past its time."""
    site.submit(role(cpu_milli=13_000), sla_waiting_seconds=1.0)
    site.later(2)
    site.cycle()
    return site.cache.refresh(site.cluster.id, site.now)


def promised_by_eviction(site: Site) -> engine.Snapshot:
    """Return the cluster while a task makes way for an urgent one."""
    site.submit(role(cpu_milli=12_000), priority=9)
    site.cycle()
    pinned = Job.objects.get(name="pinned")
    jobs.cancel_job(actor=site.admin, job_id=pinned.id, now=site.now)
    return site.cache.refresh(site.cluster.id, site.now)


@pytest.fixture
def snapshots() -> list[engine.Snapshot]:
    """A cluster on which everything was said that can be said, at two moments."""
    site = make_site()
    furnish_network_and_configuration(site)
    furnish_nodes(site)
    furnish_queues(site)
    furnish_jobs(site)
    return [kept_by_deadline(site), promised_by_eviction(site)]


def everything() -> set[str]:
    """Return all fields that plugins read."""
    return {f"{kind.__name__}.{one.name}" for kind in READ for one in fields(kind)}


def test_every_field_is_filled_or_listed(snapshots: list[engine.Snapshot]) -> None:
    """What no row carries to the planner is noticed, and so is a line that outlived its reason."""
    found = {name for snapshot in snapshots for name in filled(snapshot)}

    assert sorted(everything() - found - set(WITHOUT_WRITER)) == []
    assert sorted(set(WITHOUT_WRITER) & found) == []


def test_the_list_names_fields_that_exist() -> None:
    """No line outlives its field."""
    assert set(WITHOUT_WRITER) <= everything()
