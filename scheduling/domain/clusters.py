"""Changing a cluster's own row: locked, and held against the version that somebody saw."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from scheduling.models import Cluster
from tenants.domain.errors import Conflict, NotFound


def locked(
    cluster_id: UUID, expected_version: int, current: Callable[[Cluster], object]
) -> Cluster:
    """Return the cluster locked for the caller's transaction; the caller counts its version up.

    `current`: what is in force, for the conflict to show.

    Raises:
        NotFound: there is no such cluster.
        Conflict: it was changed since `expected_version` was read.
    """
    cluster = Cluster.objects.select_for_update().filter(id=cluster_id).first()
    if cluster is None:
        raise NotFound("cluster")
    if cluster.version != expected_version:
        params = {"expected": expected_version, "version": cluster.version}
        raise Conflict("version", params, current=current(cluster))
    return cluster
