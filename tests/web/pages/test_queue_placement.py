"""The form of where a queue's jobs run and what it is stated to deserve."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import Client

from scheduling.domain.queue_placement import NodeGroups, placement_of
from scheduling.models import Cluster, Node, Queue
from tenants.models import AuditRow, User
from tests.factories.demo import GIB, GPU
from tests.web.pages.conftest import Site

pytestmark = pytest.mark.django_db
Browse = Callable[[User], Client]
ADDRESS = "/queues/robots/placement/"
BOTH_PLUGINS = "actions: allocate\ntiers:\n- plugins: [{name: nodegroup}, {name: capacity}]\n"
WHOLE = {
    "required": "a100, h100",
    "preferred": "h100",
    "forbidden": "old",
    "limits": "a100: gpu=4 memory=64Gi\n\nh100: gpu=2500m",
    "deserved.nvidia.com/gpu": "2",
    "deserved.memory": "4Gi",
    "reason": "asked for",
}


def _post(client: Client, site: Site, **fields: str) -> tuple[int, str]:
    version = str(Queue.objects.get(id=site.robots.id).version)
    reply = client.post(ADDRESS, {"version": version, **fields})
    return reply.status_code, reply.content.decode()


def test_what_is_typed_is_stated_and_comes_back(site: Site, browse: Browse) -> None:
    """Groups, limits and amounts are kept with a record, and stand in the fields afterwards."""
    client = browse(site.people.root)

    status, _ = _post(client, site, **WHOLE)
    stated = placement_of(Queue.objects.get(id=site.robots.id))
    values = client.get(ADDRESS).context["form"].values
    again, _ = _post(client, site, **{name: values.get(name, "") for name in WHOLE})

    assert (status, again) == (302, 302)
    assert stated.node_groups == NodeGroups(
        required=("a100", "h100"),
        preferred=("h100",),
        forbidden=("old",),
        limits={"a100": {GPU: 4000, "memory": 64 * GIB}, "h100": {GPU: 2500}},
    )
    assert stated.stated_deserved == {GPU: 2000, "memory": 4 * GIB}
    assert values["limits"] == "a100: memory=64Gi gpu=4\nh100: gpu=2500m"
    assert (values["required"], values["deserved.memory"]) == ("a100, h100", "4Gi")
    record = AuditRow.objects.get(action="queue.placement")  # what changes nothing leaves none
    assert (record.reason, record.actor_id) == ("asked for", site.people.root.id)


def test_emptied_fields_state_nothing(site: Site, browse: Browse) -> None:
    """The queue is then as if nobody had ever said anything."""
    client = browse(site.people.root)
    _post(client, site, **WHOLE)

    _post(client, site)

    assert placement_of(Queue.objects.get(id=site.robots.id)).is_empty


@pytest.mark.parametrize(
    ("field", "typed", "words"),
    [
        ("required", "no_group!", "“no_group!” is not the name of a group of nodes"),
        ("limits", "a100 gpu=4", "write a group and its amounts, such as"),
        ("limits", "a100: gpu=many", "&quot;many&quot; is not an amount of GPU"),
        ("limits", "a100: gpu=9999999999999", "is too large; the limit is"),
        ("deserved.memory", "much", "&quot;much&quot; is not an amount of memory"),
        ("deserved.nvidia.com/gpu", "99", "is above its max"),
        ("forbidden", "fast", "is wanted and kept away from"),
    ],
)
def test_what_cannot_be_is_said_at_its_field(
    site: Site, browse: Browse, field: str, typed: str, words: str
) -> None:
    """What was typed stays, the words stand beside it, and nothing is changed."""
    Queue.objects.filter(id=site.robots.id).update(max={GPU: 4000})

    status, page = _post(browse(site.people.root), site, **{"required": "fast", field: typed})

    assert status == 422
    assert words in page.partition(f'id="{field}-error"')[2].partition("</span>")[0]
    assert placement_of(Queue.objects.get(id=site.robots.id)).is_empty


def test_who_was_slower_sees_how_it_is_and_may_send_again(site: Site, browse: Browse) -> None:
    """A stale form is not applied; what is stated now stands above what was typed."""
    client = browse(site.people.root)
    stale = str(site.robots.version)
    _post(client, site, preferred="theirs")

    reply = client.post(ADDRESS, {"version": stale, "preferred": "mine"})
    page = reply.content.decode()
    kept = placement_of(Queue.objects.get(id=site.robots.id)).node_groups.preferred
    client.post(ADDRESS, reply.context["form"].values)

    assert reply.status_code == 409
    assert "<dt>Prefers the node groups</dt><dd>theirs</dd>" in page
    assert kept == ("theirs",)
    assert placement_of(Queue.objects.get(id=site.robots.id)).node_groups.preferred == ("mine",)


def test_form_says_which_groups_there_are_and_who_goes_by_them(site: Site, browse: Browse) -> None:
    """By default no plugin reads it, which is said; a name that no node has is told once saved."""
    client = browse(site.people.root)
    bare = client.get(ADDRESS).content.decode()
    Node.objects.filter(id=site.node.id).update(labels={"volcano.sh/nodegroup-name": "a100"})
    Cluster.objects.filter(id=site.cluster.id).update(scheduler_config=BOTH_PLUGINS, version=99)

    known = client.get(ADDRESS).content.decode()
    saved = client.post(
        ADDRESS, {"version": site.robots.version, "required": "a100 h100"}, follow=True
    ).content.decode()
    Cluster.objects.filter(id=site.cluster.id).update(scheduler_config="", version=100)
    inert = client.post(
        ADDRESS, {"version": site.robots.version + 1, "avoided": "a100"}, follow=True
    )

    assert "does not name the plugin “nodegroup”" in bare
    assert "No node is in a group yet" in bare
    assert "does not name the plugin" not in known
    assert '<span class="tag">a100: 1 node</span>' in known
    assert "No node is in the group h100 now" in saved
    assert "the next cycle goes by it" in saved
    assert "does not name nodegroup: no effect yet" in inert.content.decode()


def test_queue_that_could_run_nowhere_is_warned_of(site: Site, browse: Browse) -> None:
    """Groups that are only kept off, or only limited, leave none to run on."""
    client = browse(site.people.root)
    told = []
    for number, fields in enumerate(({"forbidden": "a100"}, {"avoided": "a100"})):
        wanted = {"version": site.robots.version + number, **fields}
        told.append(client.post(ADDRESS, wanted, follow=True).content.decode())

    assert ["Its jobs may run on no group" in page for page in told] == [True, False]


def test_form_is_for_who_manages_the_parent(site: Site, browse: Browse) -> None:
    """It is reached from the queue's page; others are refused, and the root has none."""
    link = f'href="{ADDRESS}"'
    pages = [
        browse(user).get("/queues/robots/").content.decode()
        for user in (site.people.root, site.people.bob)
    ]
    refused = [browse(user).get(ADDRESS) for user in (site.people.bob, site.people.charlie)]
    root = browse(site.people.root).get("/queues/root/placement/")

    assert [link in page for page in pages] == [True, False]
    assert [one.status_code for one in refused] == [403, 404]
    assert root.status_code == 422
