"""Admissions lapse that are not used, and make way for jobs that ask for the first time."""

from __future__ import annotations

from dataclasses import replace

from scheduling.engine.cycle import plan
from scheduling.engine.types import CPU, ActionConfig, Config, GangPhase, PluginConfig, Snapshot
from tests.scenarios import read


def lapsing(seconds: str, *plugins: str) -> Config:
    """Return a configuration whose admissions lapse."""
    return Config(
        (ActionConfig("enqueue", {"lapseSeconds": seconds}), ActionConfig("allocate")),
        (tuple(PluginConfig(name) for name in ("gang", "predicates", *plugins)),),
    )


def waiting(admitted_at: float | None) -> Snapshot:
    """Return a job that was let in and cannot start, and one that asks for the rest."""
    snapshot = read("""
        nodes  n1: cpu=2 cordoned
        nodes  n2: cpu=2
        queue  q: max.cpu=2
        job    q/old: 2 x cpu=1 min=2 select.zone=none phase=Inqueue
        job    q/new: 2 x cpu=1 min=2
    """)
    old, new = (replace(j, min_resources={CPU: 2000}) for j in snapshot.jobs)
    return replace(snapshot, jobs=(replace(old, admitted_at=admitted_at), new))


def test_an_admission_that_is_not_used_lapses() -> None:
    """The newcomer is let in and starts; the old one has to ask again."""
    found = plan(waiting(admitted_at=300.0), lapsing("600", "capacity"))

    assert {b.job for b in found.binds} == {"q/new"}
    assert found.phases["q/old"] is GangPhase.PENDING


def test_an_admission_stands_until_its_time_is_over() -> None:
    """Before that, where the time is not known, and where admissions never lapse."""
    for admitted_at, seconds in ((500.0, "600"), (None, "600"), (300.0, "0")):
        found = plan(waiting(admitted_at), lapsing(seconds, "capacity"))
        assert found.binds == ()
        assert "q/old" not in found.phases


def test_a_job_whose_admission_lapsed_is_let_in_again_where_there_is_room() -> None:
    """Nobody else asks: it is in again, from now on."""
    snapshot = waiting(admitted_at=300.0)
    alone = replace(snapshot, jobs=snapshot.jobs[:1])

    assert plan(alone, lapsing("600", "capacity")).phases == {"q/old": GangPhase.INQUEUE}
    assert plan(alone, lapsing("600", "overcommit")).phases == {"q/old": GangPhase.INQUEUE}
    assert plan(alone, lapsing("600", "proportion")).phases == {"q/old": GangPhase.INQUEUE}


def test_a_gang_above_a_max_is_told_which_one() -> None:
    """The queue, the amount and the max are named, not only that it was refused."""
    found = plan(
        read("""
            nodes  n1: cpu=8
            queue  group: max.cpu=4
            queue  q: parent=group
            job    q/large: 3 x cpu=2 min=3
        """),
        Config(
            (ActionConfig("enqueue"), ActionConfig("allocate")),
            ((PluginConfig("gang"), PluginConfig("shares"), PluginConfig("predicates")),),
        ),
    )

    reason = found.job_reasons["q/large"]
    assert reason.code == "queue_max"
    assert reason.params == {
        "queue": "group",
        "resource": CPU,
        "requested": 6000,
        "allocated": 0,
        "max": 4000,
    }
