"""How queues open and close, alone and in the tree."""

from __future__ import annotations

import pytest

from scheduling.lifecycle.queue_states import FollowUp, QueueView, next_state, step_queue
from scheduling.lifecycle.states import QueueState
from scheduling.lifecycle.table import QueueAction

S, A = QueueState, QueueAction


@pytest.mark.parametrize(
    ("state", "action", "gangs", "expected"),
    [
        (S.OPEN, A.CLOSE, 0, S.CLOSED),
        (S.OPEN, A.CLOSE, 3, S.CLOSING),
        (S.CLOSING, A.SYNC, 0, S.CLOSED),
        (S.CLOSING, A.SYNC, 1, S.CLOSING),
        (S.CLOSING, A.OPEN, 1, S.OPEN),
        (S.CLOSED, A.OPEN, 0, S.OPEN),
        (S.UNKNOWN, A.CLOSE, 1, S.CLOSING),
    ],
)
def test_a_queue_alone(
    state: QueueState, action: QueueAction, gangs: int, expected: QueueState
) -> None:
    """A queue with jobs is closing until the last has ended."""
    assert next_state(state, action, gangs=gangs) is expected


def test_closing_a_parent_closes_its_open_children() -> None:
    """Children that were closed by hand are left alone and not marked."""
    children = [QueueView("a", S.OPEN), QueueView("b", S.CLOSED)]

    done = step_queue(queue=QueueView("dept", S.OPEN), action=A.CLOSE, children=children)

    assert done.queue.state is S.CLOSED
    assert done.follow_ups == (FollowUp("a", A.CLOSE, marks_closed_by_parent=True),)


def test_opening_a_parent_reopens_only_what_it_closed() -> None:
    """The mark decides."""
    children = [QueueView("a", S.CLOSED, closed_by_parent=True), QueueView("b", S.CLOSED)]

    done = step_queue(queue=QueueView("dept", S.CLOSED), action=A.OPEN, children=children)

    assert done.follow_ups == (FollowUp("a", A.OPEN),)


@pytest.mark.parametrize(
    ("queue", "action", "parent", "refusal"),
    [
        (QueueView("a", S.CLOSED), A.OPEN, QueueView("d", S.CLOSING), "parent-not-open"),
        (QueueView("root", S.OPEN, is_root=True), A.CLOSE, None, "root-protected"),
    ],
)
def test_what_is_refused(
    queue: QueueView, action: QueueAction, parent: QueueView | None, refusal: str
) -> None:
    """A refusal changes nothing."""
    done = step_queue(queue=queue, action=action, parent=parent)

    assert (done.refusal, done.queue) == (refusal, queue)


@pytest.mark.parametrize(
    ("queue", "parent_state", "follow_up"),
    [
        (QueueView("a", S.OPEN), S.CLOSED, FollowUp("a", A.CLOSE, marks_closed_by_parent=True)),
        (QueueView("a", S.CLOSED, closed_by_parent=True), S.OPEN, FollowUp("a", A.OPEN)),
    ],
)
def test_a_look_at_the_parent_repairs_a_child(
    queue: QueueView, parent_state: QueueState, follow_up: FollowUp
) -> None:
    """A queue moved below a closed parent closes; a marked one below an open parent opens."""
    done = step_queue(queue=queue, action=A.SYNC, parent=QueueView("d", parent_state))

    assert done.follow_ups == (follow_up,)


def test_nothing_follows_where_parent_and_child_agree() -> None:
    """Also at the top of the tree."""
    alone = step_queue(queue=QueueView("a", S.OPEN), action=A.SYNC)
    agreed = step_queue(queue=QueueView("a", S.OPEN), action=A.SYNC, parent=QueueView("d", S.OPEN))

    assert (alone.follow_ups, agreed.follow_ups) == ((), ())
