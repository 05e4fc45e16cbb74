"""One row a job and one a role: what its tasks hold, wait for and have done."""

from __future__ import annotations

from scheduling.engine.shapes import Shape
from scheduling.engine.types import GangPhase, Job, Role, Task, TaskState

HOLDING = frozenset({TaskState.ALLOCATED, TaskState.BOUND, TaskState.RUNNING})
Signature = tuple[object, ...]


class RoleRow:
    """One role of a job as read from the snapshot; tasks are in order of index."""

    __slots__ = (
        "done",
        "held",
        "is_ruled",
        "latest_not_before",
        "name",
        "pending",
        "position",
        "promised",
        "releasing",
        "role",
        "shape",
    )

    def __init__(self, role: Role, shape: Shape, position: int) -> None:
        """Start with no tasks."""
        self.role = role
        self.name = role.name
        self.shape = shape
        self.position = position
        self.pending: list[Task] = []
        self.held: list[tuple[Task, int]] = []
        self.releasing: list[tuple[Task, int]] = []
        self.promised: list[tuple[Task, int]] = []
        self.done = 0
        self.is_ruled = False
        """Whether it has rules about neighbours."""
        self.latest_not_before = 0.0


class JobRow:
    """One job as read from the snapshot; never changed afterwards."""

    __slots__ = (
        "allocated",
        "has_mixed_tasks",
        "held_count",
        "is_elastic",
        "is_placed",
        "is_valid",
        "job",
        "min_available",
        "pending_count",
        "releasing",
        "requested",
        "roles",
        "settled_phase",
        "signature",
    )

    def __init__(self, job: Job, roles: list[RoleRow], width: int) -> None:
        """Sum up what the job holds and asks for."""
        self.job = job
        self.roles = roles
        self.allocated = [0] * width
        self.requested = [0] * width
        self.releasing = [0] * width
        self.held_count = 0
        self.pending_count = 0
        scheduled = releasing = done = running = valid = 0
        role_min_sum = 0
        is_valid = True
        for role in roles:
            held, pending = len(role.held), len(role.pending)
            promised = len(role.promised)
            for d, amount in role.shape.items:
                self.allocated[d] += amount * (held + promised)
                self.requested[d] += amount * pending
                self.releasing[d] += amount * len(role.releasing)
            self.held_count += held
            self.pending_count += pending
            scheduled += held + role.done
            done += role.done
            if held:
                running += sum(1 for task, _ in role.held if task.state is TaskState.RUNNING)
            releasing += len(role.releasing)
            total = held + pending + role.done + promised
            valid += total
            role_min_sum += role.role.min_available
            is_valid = is_valid and total >= role.role.min_available
        self.min_available = max(job.min_available, role_min_sum)
        self.is_valid = is_valid and valid >= self.min_available
        self.is_placed = bool(self.held_count or releasing or any(r.promised for r in roles))
        """Whether any task has, is leaving, or was promised a place."""
        self.is_elastic = self.held_count + done > self.min_available
        self.has_mixed_tasks = len(roles) > 1 and len({r.role.priority for r in roles}) > 1
        self.signature = self._signature()
        if not (job.is_runnable and self.is_valid):
            self.requested = [0] * width
        for d, amount in enumerate(self.allocated):
            self.requested[d] += amount
        self.settled_phase = _phase(
            job.phase,
            scheduled=scheduled + releasing,
            done=done,
            running=running,
            needed=self.min_available,
        )

    def _signature(self) -> Signature:
        """Return what it shares with the jobs that fare exactly as it does, until one starts.

        Waiting jobs of one role that hold nothing: same queue, shape, size, minimum, priority,
        owner and waiting time. Among them the order is by age and key, and if the first one
        cannot be placed no other can. Any other job stands for itself.
        """
        job = self.job
        role = self.roles[0] if len(self.roles) == 1 else None
        if (
            role is None
            or self.held_count
            or role.done
            or role.promised
            or role.releasing
            or role.latest_not_before
            or job.annotations
            or job.topology is not None
            or job.sub_groups
            or role.is_ruled
        ):
            return (job.key,)
        return (
            job.queue,
            role.shape.index,
            role.role.priority,
            role.role.min_available,
            role.role.preemptable,
            len(role.pending),
            job.min_available,
            job.priority,
            job.owner,
            job.phase,
            job.sla_waiting_seconds,
            job.time_limit_seconds,
        )


def has_neighbour_rules(role: Role) -> bool:
    """Return whether where its tasks may go depends on which other tasks are there."""
    return bool(
        role.pod_terms or role.spread or role.ports or role.volume_claims or role.device_claims
    )


def _phase(phase: GangPhase, *, scheduled: int, done: int, running: int, needed: int) -> GangPhase:
    """Return the phase that a gang's tasks stand for.

    Source: Volcano pkg/scheduler/framework/session.go, jobStatus.
    """
    if scheduled >= needed and scheduled > 0:
        return GangPhase.COMPLETED if scheduled == done else GangPhase.RUNNING
    if running:
        return GangPhase.UNKNOWN
    return GangPhase.INQUEUE if phase is GangPhase.INQUEUE else GangPhase.PENDING
