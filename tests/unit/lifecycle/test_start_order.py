"""When roles may start that wait for others."""

from __future__ import annotations

from scheduling.lifecycle.decisions import is_role_ready, may_start
from scheduling.lifecycle.values import RoleView, TaskCounts
from tests.unit.lifecycle.world import job_of


def test_a_chain_starts_one_after_the_other() -> None:
    """B may start when a has its minimum ready; what succeeded counts as ready."""
    a = RoleView("a", 3, min_available=2, counts=TaskCounts(running=2, ready=1, succeeded=1))
    b = RoleView("b", 1, min_available=1, depends_on=("a",))
    c = RoleView("c", 1, depends_on=("b",))
    job = job_of(a, b, c)

    assert [may_start(job, role) for role in job.roles] == [True, True, False]


def test_running_is_not_yet_ready() -> None:
    """A role whose tasks run but are not ready holds its followers back."""
    assert not is_role_ready(RoleView("a", 1, min_available=1, counts=TaskCounts(running=1)))


def test_one_of_several_is_enough_where_any_is_asked() -> None:
    """With `any` the first ready role opens the way, with `all` the last one."""
    ready = RoleView("a", 1, min_available=1, counts=TaskCounts(running=1, ready=1))
    waiting = RoleView("b", 1, min_available=1)
    wants_any = RoleView("c", 1, depends_on=("a", "b"), depends_on_any=True)
    wants_all = RoleView("d", 1, depends_on=("a", "b"))
    job = job_of(ready, waiting, wants_any, wants_all)

    assert (may_start(job, wants_any), may_start(job, wants_all)) == (True, False)


def test_a_role_without_own_minimum_holds_nobody_back() -> None:
    """There is no number to wait for."""
    free = RoleView("a", 3)
    waiting = RoleView("b", 1, depends_on=("a",))

    assert may_start(job_of(free, waiting), waiting)
