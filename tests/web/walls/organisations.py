"""Random organisations with something of each kind in every unit, and what the tree says."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from django.db import connection
from hypothesis import strategies as st

from scheduling.domain import change_sets, unit_queues
from scheduling.domain.deeds import Deed
from scheduling.domain.queue_changes import QueueEdit
from scheduling.models import (
    History,
    ImageRule,
    Job,
    LogChunk,
    MetricSample,
    Node,
    Queue,
    Quota,
    QuotaLimit,
    Task,
)
from tenants.domain import audit
from tenants.domain.access import SYSTEM
from tenants.models import ApiToken, GrantRole, OrgUnit, Secret, User, Webhook
from tests.factories.demo import make_cluster, make_job, make_node, make_queue, run_task
from tests.people import make_grant, make_unit, make_user

NAMES = (
    "a",
    "ab",
    "a%",
    "a_",
    "a/",
    "a/b",
    "A",
    "\u0430",  # Cyrillic, alike
    "a\u0301",  # two letters that look like the next
    "\u00e1",
    "\uff41",  # full width
    "a\u200b",  # a space of no width
    "%",
    "_",
    "aa",
    "a b",
    "a'",
    "<a>",
    "\\a",
    "a\u202eb",  # written from right to left
)
"""Names that catch comparisons by prefix, by pattern, by look, and what is not escaped."""
READING = (
    GrantRole.VIEWER,
    GrantRole.RESEARCHER,
    GrantRole.QUEUE_MANAGER,
    GrantRole.ORG_ADMIN,
    GrantRole.AUDITOR,
)
READERS = 3
MOST_UNITS = 10
Given = tuple[int, GrantRole, int]
"""A grant: reader, role, unit."""


@dataclass(frozen=True, slots=True)
class Organisation:
    """Parents by unit (None: a tenant), names, grants, and moves as (unit, parent)."""

    parents: tuple[int | None, ...]
    names: tuple[str, ...]
    grants: tuple[Given, ...]
    moves: tuple[tuple[int, int], ...]


@st.composite
def organisations(draw: st.DrawFn, fewest: int = 2, most: int = MOST_UNITS) -> Organisation:
    """Draw units of different names, grants for the readers, and up to three moves."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=fewest, max_size=most, unique=True))
    units = st.integers(0, len(names) - 1)
    parents = tuple(
        None if index == 0 else draw(st.one_of(st.none(), st.integers(0, index - 1)))
        for index in range(len(names))
    )
    readers = st.integers(0, READERS - 1)
    grants = draw(
        st.lists(
            st.tuples(readers, st.sampled_from(READING), units), min_size=2, max_size=6, unique=True
        )
    )
    moves = draw(st.lists(st.tuples(units, units), max_size=3))
    return Organisation(parents, tuple(names), tuple(grants), tuple(moves))


@dataclass(slots=True)
class Built:
    """The rows of an organisation by unit, and its parents as they are after the moves."""

    names: tuple[str, ...]
    grants: tuple[Given, ...]
    parents: list[int | None]
    units: list[OrgUnit]
    queues: list[Queue]
    readers: list[User]
    jobs: list[Job] = field(default_factory=list)
    attempts: list[str] = field(default_factory=list)
    people: list[User] = field(default_factory=list)
    webhooks: list[Webhook] = field(default_factory=list)
    plans: list[str] = field(default_factory=list)

    def chain(self, unit: int) -> list[int]:
        """Return a unit and all above it, the tenant last."""
        found = [unit]
        while (parent := self.parents[found[-1]]) is not None:
            found.append(parent)
        return found

    def below(self, reader: int, roles: Collection[GrantRole] = READING) -> set[int]:
        """Return the units at or below a reader's grants of some roles, by walking up from each."""
        granted = {unit for who, role, unit in self.grants if who == reader and role in roles}
        return {unit for unit in range(len(self.units)) if granted & set(self.chain(unit))}

    def around(self, reader: int, roles: Collection[GrantRole] = READING) -> set[int]:
        """Return the same and all units above the grants."""
        granted = [unit for who, role, unit in self.grants if who == reader and role in roles]
        return self.below(reader, roles) | {up for unit in granted for up in self.chain(unit)}

    def named_after(self, unit: int) -> int:
        """Return the unit whose job stands in the reason why this unit's job waits."""
        return (unit + 1) % len(self.units)


def build(given: Organisation) -> Built:
    """Write the units and queues, move, and put something of each kind in every unit."""
    now = datetime.now(UTC)
    cluster, root = make_cluster("main", now)
    node = make_node(cluster, "gpu-01", now, gpus=0)
    units: list[OrgUnit] = []
    queues: list[Queue] = []
    for number, (parent, name) in enumerate(zip(given.parents, given.names, strict=True)):
        units.append(make_unit(name, units[parent] if parent is not None else None))
        above = queues[parent] if parent is not None else root
        shared = {"are_logs_shared": number % 2 == 1}
        queues.append(make_queue(cluster, units[number], above, f"{name}-q", now, **shared))
    readers = [make_user(f"reader{number}") for number in range(READERS)]
    for user, role, unit in given.grants:
        make_grant(readers[user], role, units[unit])
    built = Built(given.names, given.grants, list(given.parents), units, queues, readers)
    for moved, target in given.moves:
        _move(built, moved, target, now)
    owner = make_user("owner")
    for number in range(len(units)):  # only now: nothing moves below a queue with jobs
        _furnish(built, number, owner, node, now)
    _name_each_other(built)
    return built


def _move(built: Built, unit: int, parent: int, now: datetime) -> None:
    """Move a unit where that is possible: inside its tenant, not below itself."""
    above = built.chain(parent)
    if built.parents[unit] is None or unit in above:
        return
    if built.chain(unit)[-1] != above[-1]:
        return
    row = OrgUnit.objects.get(id=built.units[unit].id)
    unit_queues.move_unit(
        deed=Deed(SYSTEM, now),
        unit_id=row.id,
        parent_id=built.units[parent].id,
        expected_version=row.version,
    )
    built.parents[unit] = parent


def _furnish(built: Built, number: int, owner: User, node: Node, now: datetime) -> None:
    """Put a job with a past, a person, a webhook and so on into a unit."""
    unit, name = built.units[number], built.names[number]
    queue = Queue.objects.get(id=built.queues[number].id)  # a move made it a newer version
    built.queues[number] = queue
    job = make_job(queue, owner, name, now + timedelta(milliseconds=number), replicas=1)
    built.jobs.append(job)
    attempt = run_task(Task.objects.get(job=job), node, queue, [], now)
    built.attempts.append(str(attempt.id))
    LogChunk.objects.create(
        attempt=attempt, stream="stdout", offset=0, size_bytes=2, data=b"x\n", at=now
    )
    MetricSample.objects.create(job=job, attempt=attempt, line=1, at=now, values={"loss": 1})
    History.objects.create(job=job, seq=1, subject="job", event="e", to_state="Pending", at=now)
    person = make_user(f"person{number} {name}")
    make_grant(person, GrantRole.VIEWER, unit)
    built.people.append(person)
    ApiToken.objects.create(
        user=person, name=f"token{number}", prefix="trc", secret_hash=f"{number}", verbs=[],
        expires_at=now + timedelta(days=1), created_at=now,
    )  # fmt: skip
    built.webhooks.append(
        Webhook.objects.create(
            unit=unit, name=name, url="https://x.example/", subjects=["job"], cursor="0.0",
            created_at=now,
        )
    )  # fmt: skip
    Secret.objects.create(
        unit=unit, name=f"s{number}", kind="variables", keys=["K"], key_id="none",
        wrapped_key=b"", ciphertext=b"", created_at=now, changed_at=now,
    )  # fmt: skip
    quota = Quota.objects.create(unit=unit, scope="unit", created_at=now)
    QuotaLimit.objects.create(quota=quota, resource="running_jobs", amount=5)
    ImageRule.objects.create(
        cluster=queue.cluster, unit=unit, position=number, pattern=f"image{number}", runtime="r"
    )
    edit = QueueEdit(queue_id=queue.id, expected_version=queue.version, weight=9)
    plan = change_sets.create(
        actor=SYSTEM, cluster_id=queue.cluster_id, title=f"plan {number}", now=now, edits=[edit]
    )
    built.plans.append(str(plan.id))
    audit.record(
        actor=SYSTEM, action="walls.touched", subject=queue, before={}, after={}, unit=unit, now=now
    )


def _name_each_other(built: Built) -> None:
    """Let the job of each unit wait for the next one's, and let all be worth looking at."""
    for number, job in enumerate(built.jobs):
        other = built.named_after(number)
        params = {"job": str(built.jobs[other].id), "queue": built.queues[other].name}
        Job.objects.filter(id=job.id).update(reason_code="quarantined", reason_params=params)
    with connection.cursor() as cursor:  # as if written by transactions that have ended
        cursor.execute("UPDATE scheduling_history SET written_xid = 1")
