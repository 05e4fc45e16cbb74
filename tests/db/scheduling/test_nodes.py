"""Machines join by a one-use token, open sessions, fall silent, and are emptied and removed."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import transaction

from scheduling.domain import launches, nodes
from scheduling.models import Attempt, Device, JoinToken, Node, Task
from tenants.domain import outbox
from tenants.domain.errors import Conflict, Denied, NotFound
from tenants.models import AuditRow, OutboxRow
from tests.factories.cluster import Site, TestNode, facts, fresh, node_row, role
from tests.people import People


def reopen(site: Site, node: TestNode, **fields: object) -> nodes.Session:
    session = nodes.open_session(node_id=node.id, facts=facts(**fields), gateway="g", now=site.now)
    node.session_id, node.seq = session.session_id, 0
    return session


def test_token_makes_one_node(site: Site) -> None:
    """A join token is used up by its first use; the node's credential opens the door afterwards."""
    _, secret = nodes.join_token_create(actor=site.admin, cluster=site.cluster, now=site.now)

    node, credential = nodes.join(token=secret, name="n1", now=site.now)
    with pytest.raises(Denied, match="join_token_unknown"):
        nodes.join(token=secret, name="n2", now=site.now)

    found = nodes.authenticate(credential)
    assert found is not None
    assert (found.id, found.state) == (node.id, "Joining")
    assert nodes.authenticate("") is None
    assert nodes.authenticate(credential + "x") is None
    assert secret not in str(list(JoinToken.objects.values()) + list(Node.objects.values()))


def test_expired_token_is_refused(site: Site) -> None:
    """A token is worth nothing after its time."""
    _, secret = nodes.join_token_create(actor=site.admin, cluster=site.cluster, now=site.now)

    with pytest.raises(Denied):
        nodes.join(token=secret, name="n", now=site.now + timedelta(hours=2))


def test_name_of_a_live_node_is_taken(site: Site) -> None:
    """Two machines cannot have one name; a removed one may come back under its own."""
    node = site.node()
    token, secret = nodes.join_token_create(
        actor=site.admin, cluster=site.cluster, now=site.now, uses=2
    )
    with pytest.raises(Conflict, match="node_name_taken"):
        nodes.join(token=secret, name=node.name, now=site.now)
    token.refresh_from_db()
    assert token.uses_left == 2

    nodes.remove(actor=site.admin, node_id=node.id, now=site.now)
    again, _ = nodes.join(token=secret, name=node.name, now=site.now)

    assert (again.id, again.state) == (node.id, "Joining")


def test_fleet_joins_as_a_whole(site: Site) -> None:
    """Many simulated nodes use one token at once: all join, each with a credential of its own."""
    token, secret = nodes.join_token_create(
        actor=site.admin, cluster=site.cluster, now=site.now, uses=5
    )
    gone = site.node()
    nodes.remove(actor=site.admin, node_id=gone.id, now=site.now)

    joined = nodes.join_many(token=secret, names=["sim-0", gone.name, "sim-1"], now=site.now)

    assert [node.name for node, _ in joined] == ["sim-0", gone.name, "sim-1"]
    assert [nodes.authenticate(credential) for _, credential in joined] == [
        node for node, _ in joined
    ]
    assert {node.labels["kubernetes.io/hostname"] for node, _ in joined} == {
        "sim-0", gone.name, "sim-1"
    }  # fmt: skip
    assert set(Node.objects.values_list("name", "state")) == {
        ("sim-0", "Joining"), (gone.name, "Joining"), ("sim-1", "Joining")
    }  # fmt: skip
    token.refresh_from_db()
    assert token.uses_left == 2
    assert AuditRow.objects.filter(action="node.join").count() == 4


@pytest.mark.parametrize(
    ("names", "refusal"),
    [
        (["a", "b", "c"], "join_token_too_few"),
        (["a", "a"], "node_name_taken"),
        (["a", "taken"], "node_name_taken"),
    ],
)
def test_fleet_joins_not_in_part(site: Site, names: list[str], refusal: str) -> None:
    """What cannot join as a whole does not join at all, and uses nothing of the token up."""
    token, secret = nodes.join_token_create(
        actor=site.admin, cluster=site.cluster, now=site.now, uses=3
    )
    nodes.join(token=secret, name="taken", now=site.now)

    with pytest.raises((Denied, Conflict), match=refusal):
        nodes.join_many(token=secret, names=names, now=site.now)

    token.refresh_from_db()
    assert token.uses_left == 2
    assert [node.name for node in Node.objects.all()] == ["taken"]


def test_only_administrators_make_tokens(site: Site, people: People) -> None:
    """A tenant's administrator sees nodes but cannot add one."""
    with pytest.raises(Denied):
        nodes.join_token_create(
            actor=people.actor(people.alice), cluster=site.cluster, now=site.now
        )


def test_session_takes_over_what_the_node_says(site: Site) -> None:
    """Opening a session makes the node Ready with its resources, less what its system needs."""
    node = site.node(gpus=2, cpu_milli=8000)

    row = node_row(node)
    assert (row.state, row.session_epoch) == ("Ready", 1)
    assert row.capacity["cpu"] == 8000
    assert row.allocatable["cpu"] == 7800
    assert row.allocatable["nvidia.com/gpu"] == 2000
    assert Device.objects.filter(node=row, is_present=True).count() == 2


def test_newer_session_wins(site: Site) -> None:
    """Of two agents with one identity the older session's heartbeats are refused."""
    node = site.node()
    old = node.session_id

    reopen(site, node)

    assert not nodes.heartbeats(sessions=[(node.id, old)], now=site.now)
    assert nodes.heartbeats(sessions=[(node.id, node.session_id)], now=site.now)
    assert node_row(node).session_epoch == 2


def test_vanished_device_is_not_present(site: Site) -> None:
    """A device that is not in the next session's list is kept, as not present."""
    node = site.node(gpus=2)
    kept = Device.objects.filter(node=node.id, index=0).get()

    reopen(site, node, devices=[nodes.DeviceFacts(uuid=kept.uuid, index=0)])

    assert list(Device.objects.filter(is_present=True)) == [kept]
    assert Device.objects.count() == 2


def test_unknown_attempts_are_stopped_and_missing_ones_given_up(site: Site) -> None:
    """A reconnecting node is told what to stop; what it lost is tried again."""
    node = site.node()
    job = site.started(role(replicas=2))
    kept, missing = site.live(job)
    outbox.done(OutboxRow.objects.values_list("id", flat=True))
    alien = Attempt(id=kept.id.__class__(int=7)).id

    session = reopen(site, node, attempts={kept.id: "Running", alien: "Running"})

    assert session.stop == (alien,)
    kept.refresh_from_db()
    missing.refresh_from_db()
    assert (kept.state, missing.state) == ("Running", "Evicted")


def test_bound_attempt_whose_launch_is_under_way_is_not_given_up(site: Site) -> None:
    """A node that does not know an attempt yet may be about to hear of it."""
    node = site.node()
    job = site.submit()
    site.cycle()

    reopen(site, node)

    assert [a.state for a in site.live(job)] == ["Bound"]


def test_reboot_ends_all_attempts(site: Site) -> None:
    """After another boot nothing of before runs, whatever the agent believes."""
    node = site.node()
    job = site.started()
    (attempt,) = site.live(job)
    outbox.done(OutboxRow.objects.values_list("id", flat=True))

    reopen(site, node, boot_id="boot-2", attempts={attempt.id: "Running"})

    attempt.refresh_from_db()
    assert (attempt.state, attempt.reason_code) == ("Evicted", "NodeRebooted")


def test_silent_node_is_given_up_after_its_lease(site: Site) -> None:
    """Not before its tasks have certainly ended are they Lost and tried elsewhere."""
    node = site.node()
    job = site.started()
    site.later(nodes.silence_limit().total_seconds() - 1)
    assert nodes.lapsed(site.now) == []
    site.later(2)
    assert nodes.lapsed(site.now) == [node.id]

    with transaction.atomic():
        assert nodes.give_up(node_id=node.id, now=site.now) == 1
    other = site.node()
    site.cycle()

    assert node_row(node).state == "NotReady"
    assert not nodes.heartbeats(sessions=[(node.id, node.session_id)], now=site.now)
    states = Attempt.objects.filter(job=job).order_by("number").values_list("state", "node_id")
    assert list(states) == [("Lost", node.id), ("Bound", other.id)]
    assert fresh(job).retry_count == 0


def test_node_that_came_back_in_time_is_not_given_up(site: Site) -> None:
    """Between the look and the lock a heartbeat may have come: then nothing is lost."""
    node = site.node()
    job = site.started()
    nodes.heartbeats(sessions=[(node.id, node.session_id)], now=site.later(60))

    with transaction.atomic():
        assert nodes.give_up(node_id=node.id, now=site.now) == 0

    assert [a.state for a in site.live(job)] == ["Running"]


def test_drain_evicts_with_grace(site: Site) -> None:
    """A drained node starts nothing and what ran is stopped, to run elsewhere."""
    node = site.node()
    job = site.started()

    nodes.drain(actor=site.admin, node_id=node.id, now=site.now, reason="new disk")
    (attempt,) = site.live(job)
    site.exited(attempt, code=143)
    site.cycle()

    attempt.refresh_from_db()
    assert (attempt.state, attempt.stop_reason) == ("Evicted", "drained")
    assert Task.objects.get(job=job).state == "Pending"
    assert AuditRow.objects.get(action="node.drain").reason == "new disk"


def test_busy_node_is_not_removed(site: Site) -> None:
    """A node with tasks is drained first; an empty one goes, and its credential with it."""
    node = site.node()
    job = site.started()
    with pytest.raises(Conflict, match="node_busy"):
        nodes.remove(actor=site.admin, node_id=node.id, now=site.now)
    site.exited(*site.live(job))

    nodes.remove(actor=site.admin, node_id=node.id, now=site.now)

    assert node_row(node).credential_hash == ""
    with pytest.raises(NotFound):
        nodes.cordon(actor=site.admin, node_id=node.id, now=site.now)


def test_orders_are_true_when_they_leave(site: Site) -> None:
    """A launch carries the epoch in force and the job's places; one that is over is void."""
    node = site.node(gpus=2)
    job = site.submit(
        role("master", gpu_milli=1000, args=("train.py",)),
        role("worker", gpu_milli=1000),
        plugins={"pytorch": {}, "svc": {}},
    )
    gone = site.submit()
    site.cycle()
    site.exited(*site.live(gone))

    rows = outbox.claim_node_commands([node.id], 100, site.now)[node.id]
    orders = launches.compose(rows)

    master, worker = site.live(job)
    port = str(master.ports["rendezvous"])
    by_attempt = {order.attempt: order for order in orders.launches.values()}
    first = by_attempt[str(master.id)]
    assert set(by_attempt) == {str(master.id), str(worker.id)}
    assert len(orders.void) == 1
    assert (first.epoch, first.argv, first.runtime) == (site.epoch, ["true", "train.py"], "host")
    assert first.task == f"{job.name}-master-0"
    assert {
        k: first.environment[k] for k in ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE")
    } == {
        "MASTER_ADDR": f"{job.name}-master-0.{job.name}",
        "MASTER_PORT": port,
        "RANK": "0",
        "WORLD_SIZE": "2",
    }
    assert by_attempt[str(worker.id)].environment["MASTER_PORT"] == port
    assert [len(order.devices) for order in by_attempt.values()] == [1, 1]
    assert first.hosts == {
        f"{job.name}-{one}-0{domain}": "127.0.0.1"
        for one in ("master", "worker")
        for domain in ("", f".{job.name}")
    }


def test_tasks_on_machines_known_by_name_are_reached_by_that_name(site: Site) -> None:
    """A hosts file takes no names for addresses, so a job reads the machine's name itself."""
    first = site.node(gpus=1, address="gpu1.example.org")
    site.node(gpus=1, address="10.0.0.7")
    job = site.submit(
        role("master", gpu_milli=1000),
        role("worker", gpu_milli=1000),
        plugins={"pytorch": {}, "svc": {}},
    )
    site.cycle()

    orders = [
        order
        for node in site.nodes
        for order in launches.compose(
            outbox.claim_node_commands([node], 100, site.now)[node]
        ).launches.values()
    ]

    on_first = job.attempts.get(node=first.id).task.role.name
    hosts = orders[0].environment
    expected = {
        "master": f"{job.name}-master-0.{job.name}",
        "worker": f"{job.name}-worker-0.{job.name}",
    }
    expected[on_first] = "gpu1.example.org"
    assert {one: hosts[f"VC_{one.upper()}_HOSTS"] for one in ("master", "worker")} == expected
