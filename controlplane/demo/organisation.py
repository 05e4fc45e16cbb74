"""The demo's two tenants: a company of three departments, and a small one beside it."""

from __future__ import annotations

from collections.abc import Sequence

from controlplane.demo.traces import VirtualCluster
from scheduling.spec.org_file import PersonEntry, QueueEntry, UnitEntry

DEPARTMENTS = ("Vision", "Speech", "Language")
OPERATOR = "demo-operator"
"""Who reads all queues and lets the fleet join: a platform admin."""
RESEARCHERS_OF_A_TEAM = 2
OTHERS = 5
"""One virtual cluster in so many belongs to the small tenant, the smallest ones first."""


def researchers(cluster: VirtualCluster) -> list[str]:
    """Return the user names of who submits a virtual cluster's jobs."""
    return [f"{cluster.name}-{number + 1}" for number in range(RESEARCHERS_OF_A_TEAM)]


def tenants(clusters: Sequence[VirtualCluster]) -> tuple[UnitEntry, UnitEntry]:
    """Return both tenants; a queue's weight is the number of servers below it."""
    small = max(1, len(clusters) // OTHERS)
    company, startup = clusters[:-small], clusters[-small:]
    departments = tuple(
        _unit(name, "department", company[place :: len(DEPARTMENTS)], ("queue_manager", "viewer"))
        for place, name in enumerate(DEPARTMENTS)
    )
    return (
        UnitEntry(
            "Company",
            "tenant",
            _queue("company", company),
            _people("company", ("org_admin", "auditor")),
            departments,
        ),
        _unit("Startup", "tenant", startup, ("org_admin", "auditor", "queue_manager", "viewer")),
    )


def _unit(
    name: str, kind: str, clusters: Sequence[VirtualCluster], roles: Sequence[str]
) -> UnitEntry:
    return UnitEntry(
        name,
        kind,
        _queue(name.lower(), clusters),
        _people(name.lower(), roles),
        tuple(_team(one) for one in clusters),
    )


def _team(cluster: VirtualCluster) -> UnitEntry:
    return UnitEntry(
        f"Team {cluster.name}",
        "team",
        _queue(cluster.queue, [cluster]),
        (
            *(PersonEntry(name, "researcher") for name in researchers(cluster)),
            PersonEntry(f"{cluster.name}-ci", "researcher", is_service=True),
        ),
    )


def _queue(name: str, clusters: Sequence[VirtualCluster]) -> QueueEntry:
    return QueueEntry(name, weight=max(1, sum(one.servers for one in clusters)))


def _people(unit: str, roles: Sequence[str]) -> tuple[PersonEntry, ...]:
    return tuple(PersonEntry(f"{unit}-{role.replace('_', '-')}", role) for role in roles)
