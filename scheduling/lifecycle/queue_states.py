"""Opening and closing queues, alone and in the tree.

Source: Volcano `pkg/controllers/queue/state/*.go`; a parent closes its open children and, when it
opens again, reopens exactly those.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from scheduling.lifecycle.states import QueueState
from scheduling.lifecycle.table import QUEUE_TABLE, QueueAction

CLOSED_STATES = frozenset({QueueState.CLOSED, QueueState.CLOSING})


@dataclass(frozen=True, slots=True)
class QueueView:
    """What the lifecycle needs to know of a queue; `gangs` are jobs that have not finished."""

    name: str
    state: QueueState
    gangs: int = 0
    closed_by_parent: bool = False
    is_root: bool = False


@dataclass(frozen=True, slots=True)
class FollowUp:
    """An action on another queue (or, later, on the same one) that this one brings about."""

    queue: str
    action: QueueAction
    marks_closed_by_parent: bool = False


@dataclass(frozen=True, slots=True)
class QueueStep:
    """What became of an action; `refusal` is a code, and then nothing changed."""

    queue: QueueView
    follow_ups: tuple[FollowUp, ...] = ()
    refusal: str = ""


def next_state(state: QueueState, action: QueueAction, *, gangs: int) -> QueueState:
    """Return the state of a queue after an action, looking at the queue alone."""
    without, with_gangs = QUEUE_TABLE[state, action]
    return with_gangs if gangs else without


def step_queue(
    *,
    queue: QueueView,
    action: QueueAction,
    parent: QueueView | None = None,
    children: Iterable[QueueView] = (),
    by_parent: bool = False,
) -> QueueStep:
    """Apply an action to a queue of the tree.

    Refused are `root-protected` (closing the root) and `parent-not-open` (opening below a queue
    that is not open). `by_parent`: the action is the follow-up of one on the parent.
    """
    if action is QueueAction.CLOSE and queue.is_root:
        return QueueStep(queue, refusal="root-protected")
    is_parent_closed = parent is not None and parent.state in CLOSED_STATES
    if action is QueueAction.OPEN and is_parent_closed:
        return QueueStep(queue, refusal="parent-not-open")
    state = next_state(queue.state, action, gangs=queue.gangs)
    if action is QueueAction.SYNC:
        return QueueStep(_with_state(queue, state), _sync_follow_ups(queue, parent))
    if action is QueueAction.OPEN:
        opened = QueueView(queue.name, state, queue.gangs, is_root=queue.is_root)
        return QueueStep(
            opened,
            tuple(FollowUp(c.name, QueueAction.OPEN) for c in children if c.closed_by_parent),
        )
    marked = queue.closed_by_parent or by_parent
    closed = QueueView(queue.name, state, queue.gangs, closed_by_parent=marked)
    return QueueStep(
        closed,
        tuple(
            FollowUp(child.name, QueueAction.CLOSE, marks_closed_by_parent=True)
            for child in children
            if child.state is QueueState.OPEN
        ),
    )


def _with_state(queue: QueueView, state: QueueState) -> QueueView:
    return QueueView(queue.name, state, queue.gangs, queue.closed_by_parent, queue.is_root)


def _sync_follow_ups(queue: QueueView, parent: QueueView | None) -> tuple[FollowUp, ...]:
    """A queue moved below a closed parent closes; one that its parent closed opens with it."""
    if parent is None:
        return ()
    if parent.state in CLOSED_STATES and queue.state is QueueState.OPEN:
        return (FollowUp(queue.name, QueueAction.CLOSE, marks_closed_by_parent=True),)
    if parent.state is QueueState.OPEN and queue.closed_by_parent:
        return (FollowUp(queue.name, QueueAction.OPEN),)
    return ()
