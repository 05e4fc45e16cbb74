"""On which nodes the volumes that a task claims can be reached, or made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from scheduling.engine.journal import Entry
from scheduling.engine.neighbours import meets
from scheduling.engine.session import Session
from scheduling.engine.shapes import Bools
from scheduling.engine.types import Requirement, Volume, VolumeClaim


class Volumes:
    """The volumes of one cycle: which are free, and which a placement of this cycle has taken.

    A claim that has its volume binds its tasks to the nodes that reach it. One that waits for its
    first task gets the smallest free volume of its class that is large enough and reached from the
    node, or a new one where the class makes them on demand. Source: Kubernetes' VolumeBinding.
    """

    def __init__(self, session: Session) -> None:
        """Index claims, classes and free volumes."""
        snapshot = session.snapshot
        self.session = session
        self.claims = {c.key: c for c in snapshot.volume_claims}
        self.classes = {c.name: c for c in snapshot.storage_classes}
        self.volumes = {v.name: v for v in snapshot.volumes}
        given = {c.volume for c in snapshot.volume_claims if c.volume}
        self.free = sorted(
            (v for v in snapshot.volumes if v.is_available and v.name not in given),
            key=lambda v: (v.size_bytes, v.name),
        )
        self.taken: dict[str, str] = {}
        """Claim -> the volume, empty for one to be made, that a placement of this cycle took."""
        self._masks: dict[tuple[tuple[Requirement, ...], ...], Bools] = {}
        self._take_for_the_placed()

    def _take_for_the_placed(self) -> None:
        """Give volumes to the claims of tasks that have a place, until it is known which they got.

        In the order in which the tasks started, as the cycle did that placed them.
        """
        if all(claim.volume for claim in self.claims.values()):
            return
        placed = [
            (task.started_at or 0.0, task.key, node, role.role.volume_claims)
            for row in self.session.tables.rows.values()
            for role in row.roles
            if role.role.volume_claims
            for task, node in role.held
            if node >= 0
        ]
        for _, _, node, claims in sorted(placed):
            self._take(claims, node)

    def allowed(self, claims: Sequence[str]) -> Bools:
        """Return bool[N]: nodes where every claim has, or could get, its volume."""
        mask: Bools = np.ones(self.session.tables.nodes.count, dtype=bool)
        waiting: list[VolumeClaim] = []
        for key in claims:
            claim = self.claims.get(key)
            if claim is None:
                return np.zeros_like(mask)
            name = claim.volume or self.taken.get(key, "")
            if name:
                volume = self.volumes.get(name)
                mask &= self._reached(volume) if volume is not None else False
            elif key not in self.taken:
                waiting.append(claim)
        if waiting:
            fits = [mask[n] and self._choose(waiting, n) is not None for n in range(len(mask))]
            mask &= np.array(fits, dtype=bool)
        return mask

    def _choose(self, claims: Iterable[VolumeClaim], node: int) -> dict[str, str] | None:
        """Return a volume for each waiting claim on a node, '' for a new one; None if not all."""
        used = {name for name in self.taken.values() if name}
        chosen: dict[str, str] = {}
        for claim in sorted(claims, key=lambda c: (c.size_bytes, c.key)):
            kind = self.classes.get(claim.storage_class)
            if kind is None or not kind.waits_for_consumer:
                return None  # its volume must come first
            found = next(
                (
                    v.name
                    for v in self.free
                    if v.name not in used
                    and v.storage_class == claim.storage_class
                    and v.size_bytes >= claim.size_bytes
                    and self._reached(v)[node]
                ),
                None,
            )
            if found is None and not kind.is_provisioned:
                return None
            chosen[claim.key] = found or ""
            used.add(found or "")
        return chosen

    def _reached(self, volume: Volume) -> Bools:
        known = self._masks.get(volume.nodes)
        if known is None:
            nodes = self.session.tables.nodes.nodes
            known = self._masks[volume.nodes] = np.array(
                [
                    not volume.nodes
                    or any(
                        all(meets(r, node.labels.get(r.key)) for r in term) for term in volume.nodes
                    )
                    for node in nodes
                ],
                dtype=bool,
            )
        return known

    def take(self, entry: Entry) -> None:
        """Give a placed task's claims their volumes."""
        self._take(entry.role.role.volume_claims, entry.node)

    def _take(self, claims: Sequence[str], node: int) -> None:
        waiting = [
            claim
            for key in claims
            if (claim := self.claims.get(key)) and not claim.volume and key not in self.taken
        ]
        self.taken |= self._choose(waiting, node) or {}

    def put_back(self, entry: Entry) -> None:
        """Take the volumes of a task back that is no longer placed, if no other one uses them."""
        if not entry.role.role.volume_claims:
            return
        used = {
            key
            for other in self.session.journal
            if other is not entry
            for key in other.role.role.volume_claims
        }
        for key in entry.role.role.volume_claims:
            if key not in used:
                self.taken.pop(key, None)
