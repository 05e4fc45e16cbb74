"""The stable codes for why a job or task waits, and the parameters that each of them carries."""

from __future__ import annotations

from enum import StrEnum


class ReasonCode(StrEnum):
    """Why something waits, in the order in which the explain ladder asks (`RUNGS`)."""

    QUEUE_MISSING = "queue_missing"
    QUEUE_NOT_LEAF = "queue_not_leaf"
    QUEUE_CLOSED = "queue_closed"
    NOT_ENOUGH_TASKS = "not_enough_tasks"
    NOT_RUNNABLE = "not_runnable"
    BACK_OFF = "back_off"
    QUOTA_EXCEEDED = "quota_exceeded"
    QUOTA_OF_UNIT = "quota_of_unit"
    QUOTA_OF_USER = "quota_of_user"
    ADMISSION_REFUSED = "admission_refused"
    QUEUE_MAX = "queue_max"
    MIN_KEPT_FREE = "min_kept_free"
    GANG_INCOMPLETE = "gang_incomplete"
    QUEUE_SHARE = "queue_share"
    BEHIND_HEAD = "behind_head"
    ROOM_RESERVED = "room_reserved"
    NODES_UNFIT = "nodes_unfit"
    TOPOLOGY = "topology"
    WAITING_FOR_ROOM = "waiting_for_room"
    RESERVED = "reserved"
    NOT_CONSIDERED = "not_considered"
    # Reasons of decisions, not of waiting.
    BEST_SCORE = "best_score"
    EVICTED_FOR = "evicted_for"


PARAMS: dict[ReasonCode, tuple[str, ...]] = {
    ReasonCode.QUEUE_MISSING: ("queue",),
    ReasonCode.QUEUE_NOT_LEAF: ("queue", "children"),
    ReasonCode.QUEUE_CLOSED: ("queue", "state"),
    ReasonCode.NOT_ENOUGH_TASKS: ("min_available", "tasks", "role"),
    ReasonCode.NOT_RUNNABLE: (),
    ReasonCode.BACK_OFF: ("until", "tasks"),
    ReasonCode.QUOTA_EXCEEDED: ("quota", "resource", "requested", "used", "hard"),
    ReasonCode.QUOTA_OF_UNIT: ("unit", "resource", "requested", "used", "hard"),
    ReasonCode.QUOTA_OF_USER: ("unit", "resource", "requested", "used", "hard"),
    ReasonCode.ADMISSION_REFUSED: ("plugin", "resource", "requested", "available"),
    ReasonCode.QUEUE_MAX: ("queue", "resource", "requested", "allocated", "max"),
    ReasonCode.MIN_KEPT_FREE: ("queue", "resource", "requested", "available", "kept"),
    ReasonCode.GANG_INCOMPLETE: (
        "placeable",
        "running",
        "min_available",
        "role",
        "nodes",
        "request",
        "histogram",
    ),
    ReasonCode.QUEUE_SHARE: ("queue", "resource", "requested", "allocated", "deserved"),
    ReasonCode.BEHIND_HEAD: ("queue", "job"),
    ReasonCode.ROOM_RESERVED: ("jobs", "nodes", "request"),
    ReasonCode.NODES_UNFIT: ("role", "nodes", "request", "histogram"),
    ReasonCode.TOPOLOGY: ("tier", "role"),
    ReasonCode.WAITING_FOR_ROOM: ("tasks", "nodes", "evictions"),
    ReasonCode.RESERVED: ("nodes", "missing", "starts_at"),
    ReasonCode.NOT_CONSIDERED: (),
    ReasonCode.BEST_SCORE: ("score", "next_node", "next_score"),
    ReasonCode.EVICTED_FOR: ("job", "queue", "is_elastic", "tasks"),
}
"""Names of the parameters of each code. Amounts are in the units of `types`; `histogram` maps a
predicate's name (`taint`, `selector`, ...) to a number of nodes, with `Exceeds <resource>` for a
whole node that is too small and `Insufficient <resource>` for one that is too full."""

FOR_WANT_OF_ROOM = frozenset(
    {
        ReasonCode.NODES_UNFIT,
        ReasonCode.GANG_INCOMPLETE,
        ReasonCode.ROOM_RESERVED,
        ReasonCode.TOPOLOGY,
    }
)
"""What keeps a job out that would be let in, had nodes more room."""

WALLS = frozenset({ReasonCode.QUOTA_OF_UNIT, ReasonCode.QUOTA_OF_USER})
"""Refusals that may be one user's alone: they say nothing of the next job of the queue."""

RUNGS: tuple[tuple[str, frozenset[ReasonCode]], ...] = (
    (
        "queue",
        frozenset(
            {
                ReasonCode.QUEUE_MISSING,
                ReasonCode.QUEUE_NOT_LEAF,
                ReasonCode.QUEUE_CLOSED,
                ReasonCode.NOT_ENOUGH_TASKS,
            }
        ),
    ),
    ("dependencies", frozenset({ReasonCode.NOT_RUNNABLE, ReasonCode.BACK_OFF})),
    (
        "quota",
        frozenset(
            {
                ReasonCode.QUOTA_EXCEEDED,
                ReasonCode.QUOTA_OF_UNIT,
                ReasonCode.QUOTA_OF_USER,
                ReasonCode.ADMISSION_REFUSED,
            }
        ),
    ),
    ("max", frozenset({ReasonCode.QUEUE_MAX, ReasonCode.MIN_KEPT_FREE})),
    ("gang", frozenset({ReasonCode.GANG_INCOMPLETE})),
    (
        "order",
        frozenset({ReasonCode.QUEUE_SHARE, ReasonCode.BEHIND_HEAD, ReasonCode.ROOM_RESERVED}),
    ),
    ("nodes", frozenset({ReasonCode.NODES_UNFIT})),
    ("topology", frozenset({ReasonCode.TOPOLOGY})),
    ("room", frozenset({ReasonCode.WAITING_FOR_ROOM, ReasonCode.RESERVED})),
    ("start", frozenset()),
)
"""The explain ladder: its rungs in order, each with the codes that fail it."""
