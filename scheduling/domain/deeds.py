"""Who changes something, when and why: what all audit rows of one call have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from scheduling.models import ChangeSet, Node, Queue
from tenants.domain import audit
from tenants.domain.access import Actor


@dataclass(frozen=True, slots=True)
class Deed:
    """One act of a person or client."""

    actor: Actor
    now: datetime
    reason: str = ""
    request_id: str = ""

    def record(
        self,
        action: str,
        subject: Queue | ChangeSet | Node,
        before: Mapping[str, Any] | None,
        after: Mapping[str, Any] | None,
    ) -> None:
        """Write the audit row of a subject, with the org unit it belongs to; as `audit.record`.

        Nodes belong to the installation.
        """
        audit.record(
            actor=self.actor,
            action=action,
            subject=subject,
            before=before,
            after=after,
            unit=None if isinstance(subject, Node) else subject.unit,
            now=self.now,
            reason=self.reason,
            request_id=self.request_id,
        )
