"""Jobs that fare alike, so that only the first of them has to be looked at."""

from __future__ import annotations

from typing import Protocol

from scheduling.engine.rows import JobRow
from scheduling.engine.types import Reason
from scheduling.engine.views import JobView


class Cycle(Protocol):
    """What a group needs of its session."""

    jobs: dict[str, JobView]
    served: dict[str, Group]
    groups: list[Group]

    def view(self, key: str) -> JobView | None:
        """Return the view of a job, None if its queue does not exist."""


class Group:
    """Waiting jobs that fare alike: only the first one that has not been served needs a view."""

    __slots__ = ("is_out", "position", "reason", "rows", "session")

    def __init__(self, session: Cycle, rows: list[JobRow], reason: Reason | None = None) -> None:
        """Start at the first."""
        self.session = session
        self.rows = rows
        self.position = 0
        self.reason = reason
        """Why the jobs that are left wait."""
        self.is_out = False
        """True for the rest of the cycle where the reason is one that no action can mend."""

    @property
    def first(self) -> JobRow:
        """The row of the first job."""
        return self.rows[min(self.position, len(self.rows) - 1)]

    @property
    def head(self) -> JobView | None:
        """The first job that has not been served, None if there is none or it has no queue."""
        if self.position >= len(self.rows):
            return None
        return self.session.view(self.rows[self.position].job.key)

    def left(self) -> list[JobRow]:
        """Return the rows of the jobs that have not been served."""
        return self.rows[self.position :] if self.position else self.rows

    def take(self, job: JobView) -> Group | None:
        """Note that the head was served; return the group in which it goes on, None if nowhere."""
        self.reason = None
        if len(self.rows) == 1:
            self.session.served[job.key] = self
            if job.pending_count:
                return self
            self.position = 1
            return None
        alone = self.session.served[job.key] = self.split()
        return alone if job.pending_count else None

    def split(self) -> Group:
        """Take the head out of the group and return it as one of its own."""
        if len(self.rows) == 1:
            return self
        alone = Group(self.session, [self.rows[self.position]])
        self.position += 1
        self.session.groups.append(alone)
        if not self.session.jobs[alone.rows[0].job.key].pending_count:
            alone.position = 1
        return alone
