"""Random organisations: whatever a reader asks, the answer is what walking up the tree says.

The oracle knows parents and grants only: a job, queue or unit is seen by who has a grant on its
unit or on one above it. It uses neither closure table nor policy. Names are chosen to catch
comparisons by prefix, by pattern and by look.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import transaction
from django.test import Client
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from scheduling.domain import queues as queue_domain
from scheduling.models import Queue
from tenants.domain.access import SYSTEM
from tenants.models import GrantRole, OrgUnit, User
from tests.factories.demo import make_cluster, make_job, make_queue
from tests.people import make_grant, make_unit, make_user

NAMES = (
    "a",
    "ab",
    "a%",
    "a_",
    "a/b",
    "A",
    "\u0430",
    "a\u0301",
    "\u00e1",
    "%",
    "_",
    "aa",
    "b",
    "a'",
    "<a>",
)
READING = (
    GrantRole.VIEWER,
    GrantRole.RESEARCHER,
    GrantRole.QUEUE_MANAGER,
    GrantRole.ORG_ADMIN,
    GrantRole.AUDITOR,
)
EXAMPLES = int(os.environ.get("TERRACE_ORACLE_EXAMPLES", "3"))


@dataclass(frozen=True, slots=True)
class Organisation:
    """Parents by unit (None: a tenant), grants as (user, role, unit), moves as (unit, parent)."""

    parents: tuple[int | None, ...]
    names: tuple[str, ...]
    grants: tuple[tuple[int, GrantRole, int], ...]
    moves: tuple[tuple[int, int], ...]


@st.composite
def organisations(draw: st.DrawFn) -> Organisation:
    """Draw two to seven units, grants for three people, and up to two moves."""
    count = draw(st.integers(2, 7))
    parents = tuple(
        None if index == 0 else draw(st.one_of(st.none(), st.integers(0, index - 1)))
        for index in range(count)
    )
    names = tuple(draw(st.sampled_from(NAMES)) for _ in range(count))
    units = st.integers(0, count - 1)
    grants = draw(
        st.lists(st.tuples(st.integers(0, 2), st.sampled_from(READING), units), max_size=5)
    )
    moves = draw(st.lists(st.tuples(units, units), max_size=2))
    return Organisation(parents, names, tuple(grants), tuple(moves))


@dataclass(slots=True)
class Built:
    """The rows of an organisation and its parents as they are after the moves."""

    units: list[OrgUnit]
    parents: list[int | None]
    jobs: dict[str, int]
    """Job's id -> unit's number."""
    queues: dict[str, int]
    users: list[User]


def build(given_: Organisation) -> Built:
    now = datetime.now(UTC)
    cluster, root = make_cluster("main", now)
    units: list[OrgUnit] = []
    queues: list[Queue] = []
    for number, (parent, name) in enumerate(zip(given_.parents, given_.names, strict=True)):
        units.append(make_unit(f"{name}{number}", units[parent] if parent is not None else None))
        above = queues[parent] if parent is not None else root
        queues.append(make_queue(cluster, units[number], above, f"q{name}{number}", now))
    users = [make_user(f"reader{number}") for number in range(3)]
    for user, role, unit in dict.fromkeys(given_.grants):
        make_grant(users[user], role, units[unit])
    numbers = {str(queue.id): number for number, queue in enumerate(queues)}
    built = Built(units, list(given_.parents), {}, numbers, users)
    for unit, parent in given_.moves:
        _move(built, unit, parent, now)
    owner = make_user("owner")
    for number, queue in enumerate(queues):  # only now: nothing moves below a queue with jobs
        built.jobs[str(make_job(queue, owner, f"job-{number}", now).id)] = number
    return built


def _move(built: Built, unit: int, parent: int, now: datetime) -> None:
    """Move a unit where that is possible: inside its tenant, not below itself."""
    above = chain(built.parents, parent)
    if built.parents[unit] is None or unit in above:
        return
    if chain(built.parents, unit)[-1] != above[-1]:
        return
    row = OrgUnit.objects.get(id=built.units[unit].id)
    queue_domain.move_unit(
        actor=SYSTEM,
        unit_id=row.id,
        parent_id=built.units[parent].id,
        expected_version=row.version,
        now=now,
    )
    built.parents[unit] = parent


def chain(parents: list[int | None], unit: int) -> list[int]:
    """Return a unit and all above it, the tenant last."""
    found = [unit]
    while (parent := parents[found[-1]]) is not None:
        found.append(parent)
    return found


def seen(built: Built, grants: tuple[tuple[int, GrantRole, int], ...], user: int) -> set[int]:
    """Return the units below a user's grants, by walking up from each."""
    granted = {unit for who, _role, unit in grants if who == user}
    return {
        number for number in range(len(built.units)) if granted & set(chain(built.parents, number))
    }


def listed(client: Client, address: str) -> list[Mapping[str, Any]]:
    """Read all pages of a list."""
    rows: list[Mapping[str, Any]] = []  # Any: what JSON holds
    cursor = ""
    while True:
        joint = "&" if "?" in address else "?"
        reply = client.get(f"{address}{joint}cursor={cursor}" if cursor else address)
        if reply.status_code == 404:
            return rows
        assert reply.status_code == 200, (address, reply.content[:300])
        rows += reply.json()["items"]
        cursor = reply.json().get("next") or ""
        if not cursor:
            return rows


def answers(client: Client, built: Built) -> dict[str, set[int]]:
    """Ask in every way which jobs, queues and units there are."""
    jobs, queues = built.jobs, built.queues
    names = {f"job-{number}": number for number in jobs.values()}
    units = {str(unit.id): number for number, unit in enumerate(built.units)}
    export = b"".join(client.get("/jobs/export.csv").streaming_content)  # type: ignore[attr-defined]  # it streams
    exported = list(csv.reader(io.StringIO(export.decode())))[1:]
    return {
        "api jobs": {jobs[row["id"]] for row in listed(client, "/api/v1/jobs?limit=5")},
        "api queues": {
            queues[row["id"]]
            for row in listed(client, "/api/v1/queues")
            if row["id"] in queues and not row["is_path_only"]  # what lies above: name and place
        },
        "job details": {
            number
            for job, number in jobs.items()
            if client.get(f"/api/v1/jobs/{job}").status_code == 200
        },
        "job logs": {
            number
            for job, number in jobs.items()
            if client.get(f"/api/v1/jobs/{job}/tasks").status_code == 200
        },
        "queue details": {
            number
            for queue, number in queues.items()
            if client.get(f"/api/v1/queues/{queue}").status_code == 200
        },
        "unit details": {
            number
            for unit, number in units.items()
            if client.get(f"/api/v1/units/{unit}").status_code == 200
        },
        "export": {names[cell] for row in exported for cell in row if cell in names},
        "search": {
            number
            for number in jobs.values()
            if f">job-{number}<" in client.get(f"/palette/?q=job-{number}").content.decode()
        },
        "page": {
            number
            for number in jobs.values()
            if f"job-{number}<" in client.get(f"/jobs/?q=job-{number}").content.decode()
        },
    }


@pytest.mark.django_db
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # each step of shrinking takes seconds
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(organisation=organisations())
def test_whatever_is_asked_the_tree_says_who_sees_it(organisation: Organisation) -> None:
    """Lists, details, search and export agree with the oracle for every reader."""
    with transaction.atomic():
        built = build(organisation)
        for number, user in enumerate(built.users):
            expected = seen(built, organisation.grants, number)
            client = Client()
            client.force_login(user)

            found = answers(client, built)

            assert found == dict.fromkeys(found, expected), user.username
        transaction.set_rollback(True)
