"""What can go wrong in the domain of scheduling, besides what `tenants.domain.errors` names."""

from uuid import UUID


class LeaseLostError(Exception):
    """The writer's epoch is not the lease's any more: somebody else acts now, write nothing."""

    def __init__(self, scope: str, epoch: int, current: int | None) -> None:
        """Say which lease, the epoch that was held and the one that is in force."""
        super().__init__(f"{scope}: epoch {epoch} is superseded by {current}")
        self.scope, self.epoch, self.current = scope, epoch, current


class IncompleteSnapshotError(Exception):
    """A snapshot lacks something it refers to: plan nothing from it."""


class StaleSessionError(Exception):
    """A report came through a session that is not the node's current one."""

    def __init__(self, node_id: object, session_id: str) -> None:
        """Say which node and which session."""
        super().__init__(f"node {node_id}: session {session_id} is not the current one")


class InconsistentJobError(Exception):
    """A job's rows contradict one another; nothing is changed, and `check_invariants` says more."""

    def __init__(self, job_id: UUID) -> None:
        """Take the job."""
        super().__init__(f"job {job_id}: its counters and attempts contradict one another")
        self.job_id = job_id
