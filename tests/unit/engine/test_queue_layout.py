"""Where queues stand in their tree, also where it is none."""

from __future__ import annotations

from scheduling.engine.queue_layout import Layout, lay_out
from scheduling.engine.shapes import UNLIMITED, Resources
from scheduling.engine.types import CPU, Queue, QueueState


def laid_out(*queues: Queue) -> Layout:
    return lay_out(queues, Resources([CPU]))


def places(layout: Layout) -> list[tuple[str, str | None, bool]]:
    """Return queue, parent and whether it is open, in order."""
    names = [place.queue.name for place in layout.places]
    return [
        (place.queue.name, names[place.parent] if place.parent >= 0 else None, place.is_open)
        for place in layout.places
    ]


def test_parents_come_before_their_children_and_one_depth_is_in_order_of_names() -> None:
    """Whatever the order in which the queues are listed; a parent that is missing is none."""
    layout = laid_out(
        Queue("a", "z"), Queue("c", "b"), Queue("d", "a"), Queue("z"), Queue("b", "nowhere")
    )

    assert places(layout) == [
        ("b", None, True),
        ("z", None, True),
        ("a", "z", True),
        ("c", "b", True),
        ("d", "a", True),
    ]
    assert [layout.places[i].queue.name for i in layout.by_name] == ["a", "b", "c", "d", "z"]


def test_what_is_below_a_closed_queue_is_closed() -> None:
    """At any depth, and nothing beside it."""
    layout = laid_out(
        Queue("org", state=QueueState.CLOSED), Queue("team", "org"), Queue("x", "team"), Queue("y")
    )

    assert [name for name, _, is_open in places(layout) if is_open] == ["y"]


def test_a_circle_of_parents_and_what_hangs_below_it_stand_at_the_top_closed() -> None:
    """Also a queue that is its own parent; the others keep their places."""
    layout = laid_out(
        Queue("m", "n"), Queue("n", "m"), Queue("below", "n"), Queue("own", "own"), Queue("org")
    )

    assert places(layout) == [
        ("below", None, False),
        ("m", None, False),
        ("n", None, False),
        ("org", None, True),
        ("own", None, False),
    ]


def test_limits_that_are_not_stated_are_none() -> None:
    """A min of nothing and a max without end, for each resource."""
    stated, silent = laid_out(Queue("a", min={CPU: 1}, max={CPU: 2}), Queue("b")).places

    assert (stated.min[0], stated.max[0], stated.max[1]) == (1, 2, UNLIMITED)
    assert (set(silent.min), set(silent.max)) == ({0}, {UNLIMITED})
