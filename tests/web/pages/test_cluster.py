"""The map of the machines, joining, cordon and drain; health."""

from collections.abc import Callable

import pytest
from django.test import Client

from controlplane.pages.fragments import cluster_map
from scheduling.domain.queries import cluster
from scheduling.models import JoinToken, Node, Usage
from tenants.domain.access import load_actor
from tenants.models import User
from tests.factories.demo import make_node, run_task
from tests.web.pages.conftest import Site

Browse = Callable[[User], Client]


def test_map_shows_use_and_never_zero_for_unknown(site: Site, browse: Browse) -> None:
    """A measured GPU shows its percent, the others a dash."""
    device = site.node.devices.get(index=1)
    Usage.objects.create(node=site.node, device_uuid=device.uuid, at=site.now, gpu_percent=42.0)

    page = browse(site.people.bob).get("/cluster/")

    slots = page.context["map"].loads[0].slots
    assert [slot.percent for slot in slots] == [None, 42.0, *[None] * 6]
    assert "0: –" in page.content.decode()  # noqa: RUF001 -- the dash of the page
    assert "1: 42 %" in page.content.decode()


def test_map_names_only_readable_jobs(site: Site, browse: Browse) -> None:
    """Who may not read the job that holds a GPU sees it held, without a name."""
    task = site.charlies.tasks.get(index=0)
    device = site.node.devices.get(index=0)
    run_task(task, site.node, site.mill, [device], site.now)

    own = browse(site.people.charlie).get("/cluster/")
    other = browse(site.people.bob).get("/cluster/")

    assert "charlies-secret" in own.content.decode()
    assert "charlies-secret" not in other.content.decode()
    assert other.context["map"].free_gpus == own.context["map"].free_gpus == 7


def test_map_is_coloured_by_what_gpus_share(site: Site, browse: Browse) -> None:
    """By queue, owner, state and health each GPU is in one group; others' names stay theirs."""
    first, second, third = site.node.devices.order_by("index")[:3]
    run_task(site.bobs.tasks.get(index=0), site.node, site.robots, [first], site.now)
    run_task(site.charlies.tasks.get(index=0), site.node, site.mill, [second], site.now)
    third.is_healthy = False
    third.save()
    Usage.objects.create(node=site.node, device_uuid=first.uuid, at=site.now, gpu_percent=1.0)
    client = browse(site.people.bob)

    def groups(colour: str) -> dict[str, int]:
        found = client.get(f"/cluster/?colour={colour}").context["groups"]
        return {group.name: group.count for group in found.groups}

    assert groups("queue") == {"robots": 1, "held by others": 1, "free": 6}
    assert groups("owner") == {"bob": 1, "held by others": 1, "free": 6}
    assert groups("state") == {"held, idle": 1, "held": 1, "not healthy": 1, "free": 5}
    assert groups("health") == {"not healthy": 1, "healthy": 7}
    assert client.get("/cluster/?colour=plaid").context["groups"] is None
    live = cluster_map(load_actor(site.people.bob), str(site.cluster.id), "queue|")
    assert live["groups"] == client.get("/cluster/?colour=queue").context["groups"]


def test_map_of_many_nodes_comes_in_pages_with_whole_sums(
    site: Site, browse: Browse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each page has its nodes by name; what is free is counted over all of them on every page."""
    monkeypatch.setattr(cluster, "NODES_PER_PAGE", 2)
    for name in ("gpu-02", "gpu-03"):
        make_node(site.cluster, name, site.now)
    Node.objects.filter(name="gpu-03").update(is_cordoned=True)
    site.node.devices.filter(index=0).update(is_healthy=False)
    device = site.node.devices.get(index=1)
    run_task(site.bobs.tasks.get(index=0), site.node, site.bobs.queue, [device], site.now)
    client = browse(site.people.bob)

    first = client.get("/cluster/").context["map"]
    page = client.get(f"/cluster/?after={first.next_after}")
    second = page.context["map"]

    assert [load.node.name for load in first.loads] == ["gpu-01", "gpu-02"]
    assert [load.node.name for load in second.loads] == ["gpu-03"]
    assert (first.next_after, second.next_after) == ("gpu-02", "")
    sums = [(one.nodes, one.gpus, one.free_gpus, one.largest_gang) for one in (first, second)]
    assert sums == [(3, 24, 6 + 8, (2, 6))] * 2
    assert 'data-live-arg="use|gpu-02"' in page.content.decode()


def test_node_counts_tasks_of_others(site: Site, browse: Browse) -> None:
    """A node's page says how many tasks run there that one may not see."""
    task = site.charlies.tasks.get(index=0)
    run_task(task, site.node, site.mill, [site.node.devices.get(index=0)], site.now)

    text = browse(site.people.bob).get("/cluster/nodes/gpu-01/").content.decode()

    assert "1 task of others that you may not see" in text
    assert "charlies-secret" not in text


def test_join_token_is_shown_once(site: Site, browse: Browse) -> None:
    """Root gets a command with a secret whose hash alone is kept."""
    client = browse(site.people.root)

    made = client.post("/cluster/join/")
    again = client.get("/cluster/join/")

    secret = made.context["secret"]
    assert f"--token {secret}" in made.content.decode()
    assert secret not in again.content.decode()
    assert secret not in JoinToken.objects.get().secret_hash


def test_token_of_a_fleet_comes_with_its_command(site: Site, browse: Browse) -> None:
    """Who asks for several nodes is told how one process joins and stands for all of them."""
    made = browse(site.people.root).post("/cluster/join/", {"fleet": "40"}).content.decode()

    assert "--nodes 40 --simulate" in made
    assert JoinToken.objects.get().uses_left == 40


def test_node_is_cordoned_by_root_alone(site: Site, browse: Browse) -> None:
    """Root cordons and uncordons; an org administrator is refused."""
    url = "/cluster/nodes/gpu-01/act/"

    refused = browse(site.people.alice).post(url, {"action": "cordon"}).status_code
    browse(site.people.root).post(url, {"action": "cordon"})
    cordoned = Node.objects.get(id=site.node.id).is_cordoned
    browse(site.people.root).post(url, {"action": "uncordon"})

    assert refused == 403
    assert cordoned
    assert not Node.objects.get(id=site.node.id).is_cordoned


def test_labels_and_taints_are_edited_on_the_nodes_page(site: Site, browse: Browse) -> None:
    """A line each; what cannot be is told beside what was typed; nobody else finds the form."""
    client = browse(site.people.root)
    address = f"/cluster/nodes/{site.node.name}/"
    taints = "team=vision:NoSchedule\nold:PreferNoSchedule"

    data = {"labels": "rack=r1\nfast", "taints": taints, "version": site.node.version}
    saved = client.post(f"{address}marks/", data)
    page = client.get(address).content.decode()
    data = {"labels": "no label", "taints": "x:Never", "version": site.node.version + 1}
    refused = client.post(f"{address}marks/", data)
    late = client.post(f"{address}marks/", {"labels": "mine", "version": site.node.version})

    node = Node.objects.get(id=site.node.id)
    assert (saved.status_code, refused.status_code) == (302, 422)
    assert node.labels == {"rack": "r1", "fast": ""}
    assert [(one["key"], one["value"], one["effect"]) for one in node.taints] == [
        ("team", "vision", "NoSchedule"),
        ("old", "", "PreferNoSchedule"),
    ]
    assert taints in page
    assert "“no label” is not the key of a label" in refused.content.decode()
    assert "“Never” is no effect of a taint" in refused.content.decode()
    assert "x:Never</textarea>" in refused.content.decode()
    assert late.status_code == 409
    assert "Somebody changed it meanwhile" in late.content.decode()
    assert f'name="version" value="{node.version}"' in late.content.decode()
    assert "Save labels and taints" not in browse(site.people.alice).get(address).content.decode()


def test_empty_cluster_leads_to_the_join_command(site: Site, browse: Browse) -> None:
    """Without a node Root is led to adding one, and a researcher to the job form."""
    site.node.devices.all().delete()
    site.node.delete()

    for_root = browse(site.people.root).get("/cluster/").content.decode()
    for_bob = browse(site.people.bob).get("/cluster/").content.decode()

    assert 'href="/cluster/join/"' in for_root
    assert 'href="/cluster/join/"' not in for_bob
    assert 'href="/jobs/new/"' in for_bob


def test_health_names_the_lease(site: Site, browse: Browse) -> None:
    """The health page says that the scheduler is present and who holds its lease."""
    text = browse(site.people.root).get("/admin/health/").content.decode()

    assert "Present" in text
    assert f"scheduler:{site.cluster.id}" in text
