"""What is left of a plan in which the check finds faults can be carried out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduling.domain.refused_plans import NO_REASON, mend
from scheduling.engine.config import DEFAULT_CONFIG
from scheduling.engine.cycle import plan
from scheduling.engine.types import Plan
from scheduling.engine.verify import check
from tests.unit.engine.test_verify import FAULTS, bind, evict, snapshot


def good() -> Plan:
    return plan(snapshot(), DEFAULT_CONFIG)


def test_sound_plan_is_left_alone() -> None:
    """A plan in which nothing is wrong comes back as it is."""
    whole = good()

    mended = mend(snapshot(), whole)

    assert mended.plan is whole
    assert (mended.left_out, mended.summary) == ((), "")


@pytest.mark.parametrize("code", sorted(FAULTS))
def test_what_is_left_passes_the_check(code: str) -> None:
    """Whatever the fault, the check finds nothing unsafe in what remains, and it is told."""
    state = snapshot()

    mended = mend(state, FAULTS[code](good()))

    assert {one.code for one in check(state, mended.plan)} <= {NO_REASON}
    assert code in {one.code for one in mended.refused}


def test_whole_gang_goes_and_others_stay() -> None:
    """A fault in one task takes its whole gang out; the binds of others stand."""
    whole = good()
    gang = [one for one in whole.binds if one.job == "a/gang"]
    others = tuple(one for one in whole.binds if one.job != "a/gang")
    assert gang
    assert others

    mended = mend(snapshot(), replace(whole, binds=(*whole.binds, gang[0])))

    assert mended.plan.binds == others
    assert (mended.left_out, mended.guilty) == (("a/gang",), {"a/gang": "bound_twice"})
    assert mended.summary == "plan refused: bound_twice a/gang-0, 1 jobs left out"


def test_victim_is_not_to_blame_for_its_eviction() -> None:
    """An eviction that may not be is the fault of the job for which it was made."""
    mended = mend(snapshot(), replace(good(), evictions=(evict("a/fix-0", "n1"),)))

    assert mended.guilty == {"a/gang": "not_preemptable"}
    assert mended.plan.evictions == ()


def test_sharers_of_a_full_node_are_not_to_blame() -> None:
    """Of several on a node that gets too much the last gives way, without a strike."""
    sharers = (
        bind("a/gang-0", "n1", "n1-gpu0"),
        bind("a/gang-1", "n1", "n1-gpu1"),
        bind("a/zone-0", "n1", "n1-gpu2"),
    )
    state = snapshot()
    full = replace(
        state,
        nodes=tuple(
            replace(node, allocatable={**node.allocatable, "nvidia.com/gpu": 3000})
            if node.name == "n1"
            else node
            for node in state.nodes
        ),
    )

    mended = mend(full, Plan(binds=sharers, job_reasons=good().job_reasons))

    assert "node_overfull" in {one.code for one in mended.refused}
    assert mended.left_out == ("a/zone",)
    assert (dict(mended.guilty), len(mended.plan.binds)) == ({}, 2)
