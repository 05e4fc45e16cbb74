"""The audit trail: one row a change, sealed in order, and every tamper named."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Barrier, Thread

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import DatabaseError, connection, transaction

from tenants.domain import audit, org
from tenants.domain.access import SYSTEM, load_actor
from tenants.domain.audit import INSTALLATION, Finding, Tamper
from tenants.domain.errors import Invalid
from tenants.models import ApiToken, AuditRow, AuditSeal, OrgUnit
from tests.people import NOW, People, make_unit

pytestmark = pytest.mark.django_db


def record(unit: OrgUnit | None, action: str = "queue.update", reason: str = "") -> AuditRow:
    """Write one row."""
    return audit.record(
        actor=SYSTEM,
        action=action,
        subject=audit.Subject("queue", "7", "q"),
        before={"weight": 1},
        after={"weight": 2},
        unit=unit,
        now=NOW,
        reason=reason,
    )


@contextmanager
def tampering() -> Iterator[None]:
    """Switch the append-only guard off, as somebody with the owner's rights could."""
    tables = ("tenants_auditrow", "tenants_auditseal")
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        for table in tables:
            cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER terrace_append_only")
        yield
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        for table in tables:
            cursor.execute(f"ALTER TABLE {table} ENABLE TRIGGER terrace_append_only")


def execute(statement: str) -> None:
    """Run SQL, past Django's own checks."""
    with connection.cursor() as cursor:
        cursor.execute(statement)


@pytest.fixture
def sealed(people: People) -> list[AuditRow]:
    """Five rows of the lab, sealed, and one of the mill."""
    rows = [record(people.lab, f"queue.update{number}") for number in range(5)]
    record(people.mill)
    audit.seal(NOW)
    return rows


def found(
    expected: dict[str, tuple[int, str]] | None = None,
) -> list[tuple[Tamper, int, int | None]]:
    """Return what verify finds: kind, position, row."""
    return [
        (finding.kind, finding.position, finding.row_id)
        for finding in audit.verify(expected).findings
    ]


@pytest.mark.django_db(transaction=True)
def test_record_outside_a_transaction() -> None:
    """A record without the transaction of its change is refused."""
    with pytest.raises(transaction.TransactionManagementError):
        record(None)


def test_reason_too_long() -> None:
    """A reason longer than its column is named, not cut."""
    with pytest.raises(Invalid) as error:
        record(None, reason="x" * 501)

    assert [problem.path for problem in error.value.problems] == ["reason"]


def test_chains_of_tenants(people: People) -> None:
    """Each tenant has a chain without a gap, and the installation one of its own."""
    for unit in (people.lab, people.robots, people.mill, None, people.lab):
        record(unit)

    assert audit.seal(NOW) == 5
    assert audit.seal(NOW) == 0
    record(people.robots)
    audit.seal(NOW)

    chains: dict[str, list[int]] = {}
    for chain, position in AuditSeal.objects.order_by("id").values_list("chain", "position"):
        chains.setdefault(chain, []).append(position)
    assert chains == {
        str(people.lab.id): [1, 2, 3, 4],
        str(people.mill.id): [1],
        INSTALLATION: [1],
    }
    verification = audit.verify()
    assert (verification.findings, verification.rows, verification.unsealed) == ((), 6, 0)


def test_seal_in_portions(people: People) -> None:
    """A limit leaves the rest for the next time."""
    for _ in range(3):
        record(people.lab)

    assert [audit.seal(NOW, limit=2) for _ in range(3)] == [2, 1, 0]
    assert found() == []


def test_untouched(sealed: list[AuditRow]) -> None:
    """A trail that nobody touched verifies, also against its own ends."""
    assert len(sealed) == 5
    assert found(audit.heads()) == []


@pytest.mark.parametrize("table", [AuditRow, AuditSeal])
def test_database_refuses_changes(
    sealed: list[AuditRow], table: type[AuditRow] | type[AuditSeal]
) -> None:
    """Without the owner's rights neither rows nor seals can be changed or deleted."""
    assert sealed
    for change in (
        lambda: table.objects.update(id=1_000_000),
        lambda: execute(f"DELETE FROM {table._meta.db_table}"),
    ):
        with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
            change()


@pytest.mark.parametrize(
    "change",
    [
        {"reason": "no reason"},
        {"after": {"weight": 3}},
        {"before": None},
        {"actor_label": "mallory"},
        {"action": "queue.delete"},
        {"subject_id": "8"},
        {"at": NOW.replace(year=2025)},
        {"request_id": "x"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_altered_row(sealed: list[AuditRow], change: dict[str, object]) -> None:
    """A changed column of one row is found at that row and nowhere else."""
    with tampering():
        AuditRow.objects.filter(id=sealed[2].id).update(**change)

    assert found() == [(Tamper.ALTERED, 3, sealed[2].id)]


def test_altered_actor(people: People, sealed: list[AuditRow]) -> None:
    """Blaming another account is an alteration, even under the same label."""
    with tampering():
        AuditRow.objects.filter(id=sealed[0].id).update(actor=people.bob)

    assert found() == [(Tamper.ALTERED, 1, sealed[0].id)]


def test_removed_row(sealed: list[AuditRow]) -> None:
    """A row removed with its seal leaves a gap that is named."""
    with tampering():
        AuditSeal.objects.filter(row=sealed[1]).delete()
        AuditRow.objects.filter(id=sealed[1].id).delete()

    assert found() == [(Tamper.REMOVED, 2, None)]


def test_removed_end(sealed: list[AuditRow]) -> None:
    """A cut end shows against the heads that were kept elsewhere."""
    heads = audit.heads()
    with tampering():
        AuditSeal.objects.filter(row__in=sealed[3:]).delete()
        AuditRow.objects.filter(id__in=[row.id for row in sealed[3:]]).delete()

    assert found() == []
    assert found(heads) == [(Tamper.REMOVED, 4, None), (Tamper.REMOVED, 5, None)]


def test_removed_and_closed_up(sealed: list[AuditRow]) -> None:
    """Numbering the rest anew does not hide a removed row."""
    with tampering():
        AuditSeal.objects.filter(row=sealed[1]).delete()
        AuditRow.objects.filter(id=sealed[1].id).delete()
        for row, position in zip(sealed[2:], (2, 3, 4), strict=True):
            AuditSeal.objects.filter(row=row).update(position=position)

    assert found()[0] == (Tamper.ALTERED, 2, sealed[2].id)


def test_sealed_anew(sealed: list[AuditRow]) -> None:
    """Who seals the whole chain again after a change is found by the heads kept elsewhere."""
    heads = audit.heads()
    chain = str(sealed[0].tenant_id)
    with tampering():
        AuditSeal.objects.filter(chain=chain).delete()
        AuditRow.objects.filter(id=sealed[0].id).update(reason="nothing")
        audit.seal(NOW)

    assert found() == []
    assert found(heads) == [(Tamper.ALTERED, 5, None)]


def test_moved_rows(sealed: list[AuditRow]) -> None:
    """Two rows that changed places are both named as moved."""
    second = AuditSeal.objects.get(row=sealed[1])
    fourth = AuditSeal.objects.get(row=sealed[3])
    spare = AuditRow.objects.exclude(id__in=[row.id for row in sealed]).get()
    with tampering():
        AuditSeal.objects.filter(row=spare).delete()
        AuditSeal.objects.filter(id=second.id).update(row=spare)
        AuditSeal.objects.filter(id=fourth.id).update(row=sealed[1])
        AuditSeal.objects.filter(id=second.id).update(row=sealed[3])

    assert found() == [(Tamper.MOVED, 2, sealed[3].id), (Tamper.MOVED, 4, sealed[1].id)]


def test_moved_to_another_tenant(people: People, sealed: list[AuditRow]) -> None:
    """A row given to another tenant is named as moved in the chain that it came from."""
    with tampering():
        AuditRow.objects.filter(id=sealed[4].id).update(tenant=people.mill)

    [finding] = audit.verify().findings
    assert finding == Finding(
        Tamper.MOVED, str(people.lab.id), 5, sealed[4].id, "queue.update4 queue 7"
    )


def test_command_prints_heads_and_findings(
    sealed: list[AuditRow], capsys: pytest.CaptureFixture[str]
) -> None:
    """The command succeeds on a whole trail and prints its ends; it fails naming what it found."""
    call_command("verify_audit")
    ends = [
        line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("head")
    ]
    assert {end[1] for end in ends} == set(audit.heads())
    expect = [f"--expect={':'.join(end[1:])}" for end in ends]
    call_command("verify_audit", *expect)
    with tampering():
        AuditRow.objects.filter(id=sealed[2].id).update(reason="other")

    with pytest.raises(CommandError, match=f"altered: row {sealed[2].id}"):
        call_command("verify_audit", *expect)
    with pytest.raises(CommandError, match="--expect"):
        call_command("verify_audit", "--expect=nonsense")


@pytest.mark.django_db(transaction=True)
def test_sealed_by_two_at_once() -> None:
    """Two relays at the same moment seal each row once and leave a whole chain."""
    with transaction.atomic():
        unit = make_unit("lab")
        for _ in range(20):
            record(unit)
    start = Barrier(2)
    counts = []

    def run() -> None:
        start.wait()
        counts.append(audit.seal(NOW))
        connection.close()

    threads = [Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(counts) == [0, 20]
    assert found() == []


def test_who_reads_what(people: People) -> None:
    """Managers read their units' rows, a researcher the own acts, a stranger nothing of them."""
    alice, bob = people.actor(people.alice), people.actor(people.bob)
    org.rename_unit(
        actor=alice, unit_id=people.vision.id, name="seeing", expected_version=1, now=NOW
    )
    audit.record(
        actor=bob,
        action="job.create",
        subject=audit.Subject("job", "1", "train"),
        before=None,
        after={},
        unit=people.robots,
        now=NOW,
    )
    record(None, "settings.update")

    def actions(name: str) -> set[str]:
        rows = audit.visible_to(people.actor(getattr(people, name)))
        return set(rows.values_list("action", flat=True))

    assert {name: actions(name) for name in ("alice", "bob", "charlie", "root")} == {
        "alice": {"org_unit.rename", "job.create"},
        "bob": {"job.create"},
        "charlie": set(),
        "root": {"org_unit.rename", "job.create", "settings.update"},
    }


def test_token_without_the_verb_reads_no_trail(people: People) -> None:
    """A token that lacks the verb reads not even its owner's acts."""
    bob = people.actor(people.bob)
    audit.record(
        actor=bob,
        action="job.create",
        subject=audit.Subject("job", "1", "train"),
        before=None,
        after={},
        unit=people.robots,
        now=NOW,
    )
    token = ApiToken(user=people.bob, name="t", verbs=["job.read"], expires_at=NOW)

    assert audit.visible_to(bob).count() == 1
    assert audit.visible_to(load_actor(people.bob, token)).count() == 0
