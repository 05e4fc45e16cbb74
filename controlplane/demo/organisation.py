"""The demo's two tenants: a company of three departments, and a small one beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from controlplane.demo.traces import VirtualCluster
from scheduling.engine.types import GPU
from scheduling.spec.org_file import PersonEntry, QueueEntry, UnitEntry

DEPARTMENTS = ("Vision", "Speech", "Language")
OPERATOR = "demo-operator"
"""Who reads all queues and lets the fleet join: a platform admin."""
RESEARCHERS_OF_A_TEAM = 2
OTHERS = 5
"""One virtual cluster in so many belongs to the small tenant, the smallest ones first."""
MILLI = 1000


@dataclass(frozen=True, slots=True)
class Fleet:
    """The GPUs that are divided, and those that the largest job asks for."""

    gpus: int
    largest_job: int


def researchers(cluster: VirtualCluster) -> list[str]:
    """Return the user names of who submits a virtual cluster's jobs."""
    return [f"{cluster.name}-{number + 1}" for number in range(RESEARCHERS_OF_A_TEAM)]


def tenants(clusters: Sequence[VirtualCluster], fleet: Fleet) -> tuple[UnitEntry, UnitEntry]:
    """Return both tenants.

    A queue's weight is the number of servers below it, its min half of the GPUs that fall to these
    by number. No tenant and no department may hold more than a part of the fleet, which has room
    for the largest job all the same.
    """
    servers = sum(one.servers for one in clusters)
    least = {one.name: fleet.gpus * one.servers // (2 * servers) for one in clusters}
    company_most = max(fleet.gpus * 9 // 10, fleet.largest_job)
    part_most = max(fleet.gpus // 2, fleet.largest_job)
    small = max(1, len(clusters) // OTHERS)
    company, startup = clusters[:-small], clusters[-small:]
    departments = tuple(
        _unit(
            name,
            "department",
            company[place :: len(DEPARTMENTS)],
            ("queue_manager", "viewer"),
            least,
            part_most,
        )
        for place, name in enumerate(DEPARTMENTS)
    )
    return (
        UnitEntry(
            "Company",
            "tenant",
            _queue("company", company, least, company_most),
            _people("company", ("org_admin", "auditor")),
            departments,
        ),
        _unit(
            "Startup",
            "tenant",
            startup,
            ("org_admin", "auditor", "queue_manager", "viewer"),
            least,
            part_most,
        ),
    )


def _unit(
    name: str,
    kind: str,
    clusters: Sequence[VirtualCluster],
    roles: Sequence[str],
    least: Mapping[str, int],
    most: int,
) -> UnitEntry:
    return UnitEntry(
        name,
        kind,
        _queue(name.lower(), clusters, least, most),
        _people(name.lower(), roles),
        tuple(_team(one, least) for one in clusters),
    )


def _team(cluster: VirtualCluster, least: Mapping[str, int]) -> UnitEntry:
    return UnitEntry(
        f"Team {cluster.name}",
        "team",
        _queue(cluster.queue, [cluster], least),
        (
            *(PersonEntry(name, "researcher") for name in researchers(cluster)),
            PersonEntry(f"{cluster.name}-ci", "researcher", is_service=True),
        ),
    )


def _queue(
    name: str,
    clusters: Sequence[VirtualCluster],
    least: Mapping[str, int],
    most: int | None = None,
) -> QueueEntry:
    return QueueEntry(
        name,
        min={GPU: MILLI * sum(least[one.name] for one in clusters)},
        max=None if most is None else {GPU: MILLI * most},
        weight=max(1, sum(one.servers for one in clusters)),
    )


def _people(unit: str, roles: Sequence[str]) -> tuple[PersonEntry, ...]:
    return tuple(PersonEntry(f"{unit}-{role.replace('_', '-')}", role) for role in roles)
