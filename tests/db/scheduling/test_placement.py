"""What jobs say about neighbours, network and CPUs decides where they run, on the live rows."""

from __future__ import annotations

from typing import Any

import pytest

from scheduling.domain import jobs, nodes, placement_rules
from scheduling.models import Cluster, Hold, Job, Node, Queue
from scheduling.spec.job_spec import NetworkTopology, TopologyPolicy
from tenants.domain.access import load_actor
from tenants.models import GrantRole
from tests.factories.cluster import Site, TestNode, make_site, role, spec
from tests.people import make_grant, make_queue, make_unit, make_user

pytestmark = pytest.mark.django_db(transaction=True)

APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {
                "topologyKey": "kubernetes.io/hostname",
                "labelSelector": {"matchLabels": {"app": "web"}},
            }
        ]
    }
}


@pytest.fixture
def site() -> Site:
    return make_site()


def web(replicas: int = 1, **fields: Any) -> Any:  # Any: a role's fields
    return role("web", replicas, labels={"app": "web"}, affinity=APART, **fields)


def places(site: Site, job: Job) -> list[str]:
    return [attempt.node.name for attempt in site.live(job)]


def test_tasks_that_want_no_such_neighbour_lie_apart(site: Site) -> None:
    """Two tasks of one role go to two machines, though one has room for both."""
    names = {site.node().name, site.node().name}
    job = site.submit(web(2))

    site.cycle()

    assert set(places(site, job)) == names


def test_another_tenants_labels_keep_nobody_away(site: Site) -> None:
    """A stranger with the same labels and rules shares the only machine."""
    site.node()
    ours = site.submit(web())
    site.cycle()
    mill = make_unit("mill")
    stranger = make_user("stranger")
    make_grant(stranger, GrantRole.RESEARCHER, mill)
    queue = make_queue(site.cluster, "mill", Queue.objects.get(id=site.root.id), mill)
    theirs = jobs.submit_job(
        actor=load_actor(stranger), spec=spec(web()), queue=queue, now=site.now
    )
    second = site.submit(web())

    site.cycle()

    assert places(site, theirs) == places(site, ours)
    assert places(site, second) == []


def labelled(node: TestNode, **labels: str) -> TestNode:
    Node.objects.filter(id=node.id).update(labels=labels)
    return node


def test_a_gang_stays_in_one_rack_where_it_must(site: Site) -> None:
    """With racks drawn by labels, a hard rule of tier 1 waits for a rack with room for all."""
    Cluster.objects.filter(id=site.cluster.id).update(
        network_tiers=[{"name": "rack", "label": "rack"}]
    )
    small = labelled(site.node(cpu_milli=8000), rack="r1")
    labelled(site.node(cpu_milli=16_000), rack="r2")
    large = labelled(site.node(cpu_milli=16_000), rack="r2")
    topology = NetworkTopology(mode="hard", highest_tier_allowed=1)
    job = site.submit(role(replicas=2, cpu_milli=10_000), network_topology=topology)
    too_large = site.submit(role(replicas=3, cpu_milli=10_000), network_topology=topology)

    site.cycle()

    assert small.name not in places(site, job)
    assert large.name in places(site, job)
    assert len(places(site, job)) == 2
    assert places(site, too_large) == []


def test_domains_follow_the_labels(site: Site) -> None:
    """A node that is moved to another rack is in that rack's domain with the next snapshot."""
    Cluster.objects.filter(id=site.cluster.id).update(
        network_tiers=[{"name": "rack", "label": "rack"}]
    )
    node = labelled(site.node(), rack="r1")
    before = site.cache.refresh(site.cluster.id, site.now)

    labelled(node, rack="r2")
    after = site.cache.refresh(site.cluster.id, site.now)

    here = frozenset({node.name})
    assert [(d.name, d.nodes) for d in before.hypernodes] == [("rack:r1", here)]
    assert [(d.name, d.nodes) for d in after.hypernodes] == [("rack:r2", here)]


NUMA = [
    {"id": 0, "cpus": "0-3", "memory_bytes": 1},
    {"id": 1, "cpus": "4-7", "memory_bytes": 1},
]


def test_a_task_gets_cpus_of_one_numa_node_and_the_next_one_others(site: Site) -> None:
    """The hold names the CPUs; they are the task's until it ends, and are told to the engine."""
    site.node(cpu_milli=8000, numa_nodes=NUMA)
    part = role(cpu_milli=3000, topology_policy=TopologyPolicy.SINGLE_NUMA_NODE)
    first = site.submit(part)
    site.later(1)
    second = site.submit(part)
    site.later(1)
    third = site.submit(part)

    assert site.cycle().rejected == []

    sets = [set(Hold.objects.get(attempt=site.live(job)[0]).cpus) for job in (first, second)]
    assert [len(cpus) for cpus in sets] == [3, 3]
    assert all(cpus <= {0, 1, 2, 3} or cpus <= {4, 5, 6, 7} for cpus in sets)
    assert not sets[0] & sets[1]
    assert places(site, third) == []
    seen = site.cache.refresh(site.cluster.id, site.now)
    told = {task.cpus for job in seen.jobs for task in job.tasks if task.cpus}
    assert {frozenset(cpus) for cpus in told} == {frozenset(cpus) for cpus in sets}


def test_two_tasks_on_one_host_port_lie_apart(site: Site) -> None:
    """A port of the host is taken once."""
    names = {site.node().name, site.node().name}
    template = {"spec": {"containers": [{"ports": [{"containerPort": 80, "hostPort": 8080}]}]}}
    job = site.submit(role(replicas=2, template=template))

    site.cycle()

    assert set(places(site, job)) == names


def test_the_tenant_of_a_task_is_in_the_snapshot(site: Site) -> None:
    """It is what keeps rules about neighbours inside a tenant."""
    site.node()
    job = site.submit()

    (seen,) = site.cache.refresh(site.cluster.id, site.now).jobs

    assert seen.roles[0].labels[placement_rules.TENANT] == str(job.tenant_id)


def test_links_between_gpus_name_the_devices_of_the_snapshot(site: Site) -> None:
    """The agent names peers as the driver does; the engine knows devices by their rows."""
    links = {"gpu-a": {"gpu-b": "NVLink"}, "gpu-b": {"gpu-a": "NVLink", "gpu-gone": "PCIe"}}
    site.node(
        devices=[
            nodes.DeviceFacts(uuid=uuid, index=number, links=links[uuid])
            for number, uuid in enumerate(links)
        ]
    )

    first, second = site.cache.refresh(site.cluster.id, site.now).nodes[0].devices

    assert first.links == ((second.id, "NVLink"),)
    assert second.links == ((first.id, "NVLink"),)
