"""The steps of a cycle as they are noted down, and what is evicted together."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from scheduling.engine.types import Task, TaskState
from scheduling.engine.views import JobView, QueueView, RoleView


class EntryKind(Enum):
    """What a journal entry did."""

    PLACE = "place"
    PROMISE = "promise"
    EVICT = "evict"


@dataclass(slots=True)
class Entry:
    """One applied step, with what is needed to undo it."""

    kind: EntryKind
    job: JobView
    role: RoleView
    task: Task
    node: int
    devices: tuple[str, ...] = ()
    cpus: tuple[int, ...] = ()
    action: str = ""
    beneficiary: str | None = None
    is_elastic: bool = False


class Unit:
    """What is evicted together: one elastic task, or all that a gang holds."""

    __slots__ = ("_amounts", "is_whole", "job", "tasks")

    def __init__(
        self,
        job: JobView,
        tasks: tuple[tuple[RoleView, Task, int], ...],
        *,
        is_whole: bool = False,
    ) -> None:
        """Keep role, task and node position of each task."""
        self.job = job
        self.tasks = tasks
        self.is_whole = is_whole
        self._amounts: list[int] | None = None

    def amounts(self, width: int) -> list[int]:
        """Return the sum of the tasks' requests; not to be changed."""
        if self._amounts is not None:
            return self._amounts
        if len(self.tasks) == 1:
            self._amounts = self.tasks[0][0].shape.request
            return self._amounts
        total = [0] * width
        for role, _, _ in self.tasks:
            for d, amount in role.shape.items:
                total[d] += amount
        self._amounts = total
        return total


class Removed:
    """Units that a search has set aside but not yet evicted, summed for the vetoes."""

    __slots__ = ("by_job", "by_queue", "by_role", "tasks", "units", "width")

    def __init__(self, width: int) -> None:
        """Start with none."""
        self.width = width
        self.units: list[Unit] = []
        self.tasks: set[str] = set()
        self.by_job: dict[str, int] = {}
        self.by_role: dict[tuple[str, str], int] = {}
        self.by_queue: dict[str, list[int]] = {}

    def add(self, unit: Unit) -> None:
        """Set a unit aside."""
        self._count(unit, 1)
        self.units.append(unit)
        for _, task, _ in unit.tasks:
            self.tasks.add(task.key)

    def drop(self, unit: Unit) -> None:
        """Put a unit back."""
        self._count(unit, -1)
        self.units.remove(unit)
        self.tasks.difference_update(task.key for _, task, _ in unit.tasks)

    def _count(self, unit: Unit, sign: int) -> None:
        key = unit.job.key
        self.by_job[key] = self.by_job.get(key, 0) + sign * len(unit.tasks)
        for role, _, _ in unit.tasks:
            self.by_role[key, role.name] = self.by_role.get((key, role.name), 0) + sign
        amounts = unit.amounts(self.width)
        for queue in unit.job.queue.path:
            total = self.by_queue.get(queue.name)
            if total is None:
                total = self.by_queue[queue.name] = [0] * self.width
            for d, amount in enumerate(amounts):
                total[d] += sign * amount

    def of_queue(self, queue: QueueView, dim: int) -> int:
        """Return how much of a resource the units set aside free in a queue."""
        total = self.by_queue.get(queue.name)
        return total[dim] if total is not None else 0


@dataclass(frozen=True, slots=True)
class Claim:
    """Who wants to evict: the action, the job, and the shape of the task it wants to place."""

    action: str
    job: JobView
    role: RoleView
    removed: Removed


def is_live(task: Task) -> bool:
    """Return whether a task holds room that an eviction would free."""
    return task.state in (TaskState.BOUND, TaskState.RUNNING)


class Undoable(Protocol):
    """What takes steps and can undo them: a session."""

    journal: list[Entry]

    def undo(self, entry: Entry) -> None:
        """Reverse one step; the journal is the caller's."""


class Statement:
    """A series of steps that stands or falls together."""

    __slots__ = ("_start", "session")

    def __init__(self, session: Undoable) -> None:
        """Remember where the journal stands."""
        self.session = session
        self._start = len(session.journal)

    def checkpoint(self) -> int:
        """Return a point to which `rollback` can return."""
        return len(self.session.journal)

    def rollback(self, to: int | None = None) -> None:
        """Undo all steps since the start, or since a checkpoint."""
        journal = self.session.journal
        end = self._start if to is None else to
        while len(journal) > end:
            self.session.undo(journal.pop())

    def commit(self) -> list[Entry]:
        """Let the steps stand and return them."""
        return self.session.journal[self._start :]
