"""The names of live topics and the hints that tell their readers to look again.

A hint says what kind of thing changed, never what it is now: whoever gets one reads the truth with
its own rights. The relay publishes hints as JSON `{"topic", "seq", "kind"}` on the Redis channel
`LIVE_CHANNEL`; `seq` is the outbox row's id and grows.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from tenants.domain.outbox import LIVE, Message

LIVE_CHANNEL = "terrace:live"
OUTBOX_TOPIC = LIVE


def job(job_id: UUID) -> str:
    """A job: its phase, tasks, history, metrics, logs."""
    return f"job:{job_id}"


def jobs(queue_id: UUID) -> str:
    """The list of a queue's jobs."""
    return f"jobs:{queue_id}"


def queue(queue_id: UUID) -> str:
    """A queue: its min, max, weight and share."""
    return f"queue:{queue_id}"


def cluster(cluster_id: UUID) -> str:
    """A cluster: its nodes, and the shares of its queues."""
    return f"cluster:{cluster_id}"


def node(node_id: UUID) -> str:
    """A node: its state, devices and usage."""
    return f"node:{node_id}"


def user(user_id: UUID) -> str:
    """What concerns one user: grants, tokens, own jobs."""
    return f"user:{user_id}"


def tenant(tenant_id: UUID) -> str:
    """What concerns a whole tenant: its org tree."""
    return f"tenant:{tenant_id}"


@dataclass(frozen=True, slots=True)
class Hint:
    """Something of this kind changed: `state`, or a job's feed `log`, `metrics` or `usage`."""

    topic: str
    kind: str


def message(hints: Iterable[Hint]) -> Message | None:
    """Return one outbox message that carries all hints of a transaction; None without any."""
    distinct = dict.fromkeys(hints)
    if not distinct:
        return None
    return Message(OUTBOX_TOPIC, "", {"hints": [[hint.topic, hint.kind] for hint in distinct]})
