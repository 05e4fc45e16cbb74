"""Who is asked before anybody is evicted, and what the plugins' votes cannot allow."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given

from scheduling.engine.actions.victims import victim_keys, victim_queues
from scheduling.engine.cycle import DEFAULT_CONFIG, open_session, plan
from scheduling.engine.registry import PLUGINS
from scheduling.engine.types import (
    ActionConfig,
    Config,
    PluginConfig,
    PodTerm,
    Requirement,
    Snapshot,
)
from tests.random_clusters import clusters
from tests.scenarios import cycle, read
from tests.unit.engine.test_properties import examples

FULL = "nodes n: gpu=2\nqueue q:\nqueue p:\njob p/old: 2 x gpu=1 min=1 running n*2\n"
OF_ITS_QUEUE = FULL + "job p/new: 1 x gpu=1 priority=1"
OF_ANOTHER_QUEUE = FULL + "job q/new: 1 x gpu=1"


GANG = PluginConfig("gang", disabled=frozenset({"preemptable", "reclaimable"}))


def config(action: str, *plugins: PluginConfig) -> Config:
    """Return a configuration of one action after allocate, with gangs that have no vote."""
    return Config((ActionConfig("allocate"), ActionConfig(action)), ((GANG, *plugins),))


@pytest.mark.parametrize(
    ("action", "text", "voter", "votes"),
    [
        ("preempt", OF_ITS_QUEUE, "priority", "preemptable"),
        ("reclaim", OF_ANOTHER_QUEUE, "shares", "reclaimable"),
    ],
)
def test_nobody_is_evicted_where_no_plugin_votes(
    action: str, text: str, voter: str, votes: str
) -> None:
    """The one plugin with a vote lets a task go; with its vote switched off the task stays."""
    silent = PluginConfig(voter, disabled=frozenset({votes}))

    assert cycle(text, config=config(action, PluginConfig(voter))).evicted == ["p/old-1"]
    assert cycle(text, config=config(action, silent)).evicted == []


def test_no_gang_is_evicted_where_no_plugin_votes() -> None:
    """Conformance lets a gang go for a domain; without it nobody does."""
    action = "gangpreempt"

    voted = cycle(OF_ITS_QUEUE, config=config(action, PluginConfig("conformance")))
    silent = cycle(OF_ITS_QUEUE, config=config(action))

    assert (len(voted.evicted), silent.evicted) == (1, [])


def apart(text: str) -> Snapshot:
    """Return a cluster whose tasks are all labelled alike, the last job's wanting none beside."""
    snapshot = read(text)
    term = PodTerm((Requirement("app", "In", ("web",)),), "host", is_anti=True)
    jobs = tuple(
        replace(
            job,
            roles=tuple(
                replace(r, labels={"app": "web"}, pod_terms=(term,) * (job is snapshot.jobs[-1]))
                for r in job.roles
            ),
        )
        for job in snapshot.jobs
    )
    return replace(snapshot, jobs=jobs)


@pytest.mark.parametrize(
    ("disabled", "evicted"), [(frozenset(), ["q/old-0"]), ({"preemptable"}, [])]
)
def test_neighbour_is_evicted_unless_predicates_may_not(
    disabled: frozenset[str], evicted: list[str]
) -> None:
    """There is room, but a neighbour to be kept away from; a flag says that it may not go."""
    snapshot = apart(
        "nodes n: gpu=2 label.host=n\nqueue q:\n"
        "job q/old: 1 x gpu=1 running n\njob q/new: 1 x gpu=1 priority=1"
    )
    predicates = PluginConfig("predicates", disabled=frozenset(disabled))

    outcome = cycle(snapshot, config=config("preempt", PluginConfig("priority"), predicates))

    assert outcome.evicted == evicted


@examples(10)
@given(clusters())
def test_who_could_lose_something_is_in_a_queue_that_could(snapshot: Snapshot) -> None:
    """The sieve that is asked once for all queues holds nobody back whom a plugin would give up."""
    session = open_session(snapshot, DEFAULT_CONFIG)
    rows = session.tables.rows
    for action in ("preempt", "reclaim"):
        most = max(row.job.priority for row in rows.values())
        queues = victim_queues(session, action, most)
        for row in rows.values():
            queue = session.queues[row.job.queue]
            victims = victim_keys(session, action, queue, row.job.priority)
            assert queues is None or {rows[key].job.queue for key in victims} <= queues


def full_of_alike(seed: int) -> Snapshot:
    """Return nodes full of jobs of one task, a few kinds of them, and jobs that may claim room."""
    dice = Random(seed)
    text = "nodes " + " ".join(f"n{i}" for i in range(8)) + ": gpu=3 cpu=9\nqueue a: weight=3\n"
    text += "queue b:\nqueue c: min.gpu=2\n"
    owners = [dice.choice("aab") for _ in range(8)]
    for i in range(24):
        text += f"job {owners[i // 3]}/r{i}: 1 x gpu=1 cpu=1 running n{i // 3} phase=Running\n"
    for i in range(9):
        queue, size = dice.choice("abc"), dice.choice([1, 2, 3])
        text += f"job {queue}/w{i}: 1 x gpu={size} cpu=2 priority={dice.randint(0, 1)}\n"
    return read(text)


@pytest.mark.parametrize("seed", range(20))
def test_victims_of_one_kind_may_be_judged_once(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who says that it votes alike on them is not asked about each, and the plan is the same."""
    snapshot = full_of_alike(seed)
    once = plan(snapshot, DEFAULT_CONFIG)
    for plugin in PLUGINS.values():
        monkeypatch.setattr(plugin, "votes_alike", False)

    assert once == plan(snapshot, DEFAULT_CONFIG)
    assert once.evictions
