"""A database restored from a backup is told so before anything acts on it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection

from scheduling.domain import clock, invariants, leases, nodes, restored
from scheduling.domain.errors import StaleSessionError
from scheduling.domain.launches import scheduler_scope
from scheduling.models import Attempt, Job, Lease, Node
from tenants.domain import outbox
from tenants.models import AuditRow, OutboxRow
from tests.factories.cluster import Site, role

TAKEN_HOURS_AGO = timedelta(hours=3)
MARKED = ("cluster", "queue", "node", "job")


def begin(site: Site, rejoining: str = "") -> restored.Restored:
    return restored.begin_anew(
        taken_at=site.now - TAKEN_HOURS_AGO, now=clock.database_now(), rejoining=rejoining
    )


def test_live_attempts_are_lost_and_their_commands_dropped(site: Site) -> None:
    """Neither what ran nor what was still to be launched may be started again as it was."""
    site.node(cpu_milli=2_500)
    running = site.started()
    bound = site.submit()
    site.cycle()
    commands = OutboxRow.objects.exclude(node=None).count()

    found = begin(site)

    assert commands > 0
    assert found == restored.Restored(attempts_lost=2, nodes_forgotten=0)
    ended = Attempt.objects.filter(job__in=[running, bound]).values_list("state", "reason_code")
    assert list(ended) == [("Lost", "NodeLost")] * 2
    assert OutboxRow.objects.exclude(node=None).count() == 0
    outbox.done(OutboxRow.objects.values_list("id", flat=True))
    assert invariants.check() == []


def test_job_goes_on_with_another_attempt(site: Site) -> None:
    """Once its node is heard of again, a task that was lost is placed anew."""
    node = site.node()
    job = site.started(role(replicas=2))
    begin(site)
    facts = nodes.NodeFacts(boot_id="b", agent_version="1", cpu_milli=16_000, memory_bytes=1 << 36)
    nodes.open_session(node_id=node.id, facts=facts, gateway="g", now=clock.database_now())
    site.epoch = Lease.objects.get(scope=site.scope).epoch

    site.cycle()

    attempts = Attempt.objects.filter(job=job).order_by("number", "task__index")
    assert list(attempts.values_list("number", "state")) == [(1, "Lost")] * 2 + [(2, "Bound")] * 2


def test_old_session_is_over(site: Site) -> None:
    """What an agent reports under the session of before is refused."""
    node = site.node()

    begin(site)

    row = Node.objects.get(id=node.id)
    assert (row.state, row.session_id) == ("NotReady", "")
    with pytest.raises(StaleSessionError):
        node.report(site.now)


def test_epochs_jump_over_all_that_was_seen(site: Site) -> None:
    """Every loop's next epoch is beyond any that an agent may keep, also of loops without a row."""
    Lease.objects.exclude(scope=site.scope).delete()
    before = Lease.objects.get(scope=site.scope).epoch

    begin(site)

    seconds = int(clock.database_now().timestamp())
    taken = {
        scope: leases.acquire(scope=scope, holder="h", ttl_seconds=5)
        for scope in (scheduler_scope(site.cluster.id), "relay", "reconcile")
    }
    assert before < 100
    assert all(epoch is not None and abs(epoch - seconds) < 60 for epoch in taken.values()), taken


def test_second_restore_jumps_again(site: Site) -> None:
    """Even a clock that stands still gives no epoch twice."""
    begin(site)
    first = Lease.objects.get(scope=site.scope).epoch

    begin(site)

    assert Lease.objects.get(scope=site.scope).epoch > first


@pytest.mark.parametrize("table", MARKED)
def test_marks_of_another_server_are_replaced(site: Site, table: str) -> None:
    """No row stays marked with a transaction of the future, which every refresh would read."""
    site.node()
    site.submit()
    with connection.cursor() as cursor:
        cursor.execute(
            "SET CONSTRAINTS ALL IMMEDIATE"
        )  # a table with pending checks is not altered
        cursor.execute(f"ALTER TABLE scheduling_{table} DISABLE TRIGGER USER")
        cursor.execute(f"UPDATE scheduling_{table} SET changed_xid = 4000000000000")
        cursor.execute(f"ALTER TABLE scheduling_{table} ENABLE TRIGGER USER")

        begin(site)

        cursor.execute("SELECT pg_current_xact_id()::text::bigint")
        now = cursor.fetchone()[0]
        cursor.execute(f"SELECT DISTINCT changed_xid FROM scheduling_{table}")
        assert cursor.fetchall() == [(now,)]


def test_machine_without_its_credential_may_join_again(site: Site) -> None:
    """The node named as rejoining is removed, which frees its name; others are not."""
    gone, other = site.node(), site.node()
    site.started()

    found = begin(site, rejoining=gone.name)

    assert found.nodes_forgotten == 1
    assert Node.objects.get(id=gone.id).state == "Removed"
    assert Node.objects.get(id=other.id).state == "NotReady"


def test_restore_is_in_the_audit_trail(site: Site) -> None:
    """Who reads the trail later sees where it was cut, and to which moment."""
    site.node()
    site.started()

    begin(site)

    row = AuditRow.objects.get(action="installation.restore")
    taken_at = (site.now - TAKEN_HOURS_AGO).isoformat().replace("+00:00", "Z")
    assert row.after == {"backup_of": taken_at, "attempts_lost": 1}
    assert Job.objects.count() == 1
