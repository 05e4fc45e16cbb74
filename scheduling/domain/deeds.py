"""Who changes something, when and why: what all audit rows of one call have in common."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from tenants.domain.access import Actor


@dataclass(frozen=True, slots=True)
class Deed:
    """One act of a person or client."""

    actor: Actor
    now: datetime
    reason: str = ""
    request_id: str = ""
