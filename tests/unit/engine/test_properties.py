"""What holds for every cluster, tree and set of jobs: random ones, planned and carried out."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from scheduling.engine.after import apply_plan
from scheduling.engine.cycle import DEFAULT_CONFIG, Memo, plan
from scheduling.engine.types import (
    CPU,
    GPU,
    Device,
    GangPhase,
    Job,
    Node,
    Plan,
    Queue,
    QueuePolicy,
    Role,
    Snapshot,
    Task,
    TaskState,
)
from scheduling.engine.verify import check
from scheduling.simulator.state import release
from tests.random_clusters import clusters

NOW = 1000.0

T = TypeVar("T")

FACTOR = int(os.environ.get("TERRACE_PROPERTIES", "1"))
"""`make properties` tries so many times as many examples."""


def examples(count: int) -> settings:
    """Return settings for so many examples."""
    return settings(
        max_examples=count * FACTOR,
        deadline=None,
        print_blob=True,
        derandomize=FACTOR == 1,  # CI tries the same ones each time, make properties others
        suppress_health_check=[HealthCheck.too_slow],
        phases=[
            Phase.explicit,
            Phase.reuse,
            Phase.generate,
        ],  # shrinking takes minutes; turn it on to debug
    )


few = examples(20)


@st.composite
def queue_trees(draw: st.DrawFn) -> tuple[Queue, ...]:
    """Draw one to five queues, some below others, with random limits."""
    names = [f"q{i}" for i in range(draw(st.integers(1, 5)))]
    queues = []
    for i, name in enumerate(names):
        parent = draw(st.sampled_from([None, *names[:i]])) if i else None
        has_max = draw(st.booleans())
        queues.append(
            Queue(
                name,
                parent=parent,
                min={GPU: 1000 * draw(st.integers(0, 2))},
                max={GPU: 1000 * draw(st.integers(2, 12))} if has_max else {},
                weight=draw(st.integers(1, 3)),
                priority=draw(st.sampled_from([0, 0, 0, 1])),
                lend_min=draw(st.sampled_from([True, True, False])),
                reclaimable=draw(st.sampled_from([True, True, False])),
                policy=draw(st.sampled_from(list(QueuePolicy))),
            )
        )
    return tuple(queues)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    """Draw a cluster, a tree of queues and jobs, some of them already running."""
    sizes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    nodes = tuple(
        Node(
            f"n{i}",
            {CPU: 8000, GPU: size * 1000},
            is_schedulable=draw(st.sampled_from([True, True, True, False])),
            devices=tuple(Device(f"n{i}-{k}", k) for k in range(size)) if i % 2 else (),
        )
        for i, size in enumerate(sizes)
    )
    queues = draw(queue_trees())
    parents = {q.parent for q in queues}
    leaves = [q.name for q in queues if q.name not in parents]
    free = {n.name: [f"{n.name}-{k}" for k in range(n.allocatable[GPU] // 1000)] for n in nodes}
    cpu = {n.name: 8000 for n in nodes}
    room = {q.name: q.max.get(GPU, 10**9) for q in queues}
    jobs = []
    for i in range(draw(st.integers(1, 7))):
        job = draw(jobs_of(f"j{i}", draw(st.sampled_from(leaves))))
        if draw(st.booleans()):
            job = _started(job, queues, nodes, free=free, cpu=cpu, room=room)
        jobs.append(job)
    return Snapshot(NOW, nodes, queues, tuple(jobs))


@st.composite
def jobs_of(draw: st.DrawFn, key: str, queue: str) -> Job:
    """Draw a waiting job of one or two roles."""
    roles = []
    for name in ("a", "b")[: draw(st.integers(1, 2))]:
        replicas = draw(st.integers(1, 4))
        roles.append(
            Role(
                name,
                {CPU: 500, GPU: 1000 * draw(st.integers(0, 2))},
                replicas,
                draw(st.integers(0, replicas)),
                preemptable=draw(st.sampled_from([True, True, True, False])),
            )
        )
    total = sum(role.replicas for role in roles)
    return Job(
        key=key,
        name=key,
        queue=queue,
        roles=tuple(roles),
        tasks=tuple(
            Task(f"{key}-{r.name}-{i}", r.name, i) for r in roles for i in range(r.replicas)
        ),
        min_available=draw(st.integers(1, total)),
        priority=draw(st.integers(0, 2)),
        owner=draw(st.sampled_from(["", "x", "y"])),
        created_at=float(draw(st.integers(0, 5))),
        phase=draw(st.sampled_from([GangPhase.PENDING, GangPhase.INQUEUE])),
        sla_waiting_seconds=draw(st.sampled_from([None, None, 10.0, 5000.0])),
        time_limit_seconds=draw(st.sampled_from([None, 100.0])),
    )


def _started(
    job: Job,
    queues: tuple[Queue, ...],
    nodes: tuple[Node, ...],
    *,
    free: dict[str, list[str]],
    cpu: dict[str, int],
    room: dict[str, int],
) -> Job:
    """Return the job with all of its tasks running, if the books allow it."""
    parents = {q.name: q.parent for q in queues}
    path = [job.queue]
    while (above := parents[path[-1]]) is not None:
        path.append(above)
    roles = {r.name: r for r in job.roles}
    books = ({k: list(v) for k, v in free.items()}, dict(cpu), dict(room))
    tasks = []
    for task in job.tasks:
        need = roles[task.role].request[GPU] // 1000
        node = next((n for n in nodes if len(free[n.name]) >= need and cpu[n.name] >= 500), None)
        if node is None or any(room[q] < need * 1000 for q in path):
            tasks.append(task)
            continue
        cpu[node.name] -= 500
        for q in path:
            room[q] -= need * 1000
        held = tuple(free[node.name].pop() for _ in range(need))
        tasks.append(
            replace(
                task,
                state=TaskState.RUNNING,
                node=node.name,
                devices=held if node.devices else (),
                started_at=900.0,
            )
        )
    running = Counter(t.role for t in tasks if t.state is TaskState.RUNNING)
    if sum(running.values()) < job.min_available or any(
        running[r.name] < r.min_available for r in job.roles
    ):
        free.update(books[0])
        cpu.update(books[1])
        room.update(books[2])
        return job
    return replace(job, tasks=tuple(tasks), phase=GangPhase.RUNNING)


@few
@given(clusters())
def test_every_plan_passes_the_verifier(snapshot: Snapshot) -> None:
    """No room, max, gang, device or victim rule is broken in three cycles in a row."""
    for _ in range(3):
        result = plan(snapshot, DEFAULT_CONFIG)
        assert check(snapshot, result) == []
        snapshot = replace(release(apply_plan(snapshot, result)), now=snapshot.now + 1)


@few
@given(clusters(), st.randoms(use_true_random=False))
def test_order_of_the_input_does_not_matter(snapshot: Snapshot, random: object) -> None:
    """Nodes, their devices, queues, jobs, their tasks and reservations, shuffled: one plan."""

    def shuffled(values: Sequence[T]) -> tuple[T, ...]:
        mixed = list(values)
        random.shuffle(mixed)  # type: ignore[attr-defined]  # Hypothesis types it as object
        return tuple(mixed)

    for _ in range(2):
        other = replace(
            snapshot,
            nodes=shuffled([replace(n, devices=shuffled(n.devices)) for n in snapshot.nodes]),
            queues=shuffled(snapshot.queues),
            jobs=shuffled([replace(j, tasks=shuffled(j.tasks)) for j in snapshot.jobs]),
            reservations=shuffled(snapshot.reservations),
        )
        expected = plan(snapshot, DEFAULT_CONFIG)
        assert _in_order(plan(other, DEFAULT_CONFIG)) == _in_order(expected)
        snapshot = replace(apply_plan(snapshot, expected), now=snapshot.now + 1)


def _in_order(result: Plan) -> Plan:
    return replace(
        result,
        job_reasons=dict(sorted(result.job_reasons.items())),
        phases=dict(sorted(result.phases.items())),
    )


@few
@given(clusters())
def test_memo_never_changes_a_plan(snapshot: Snapshot) -> None:
    """With what was kept from earlier cycles the plan is the same as without."""
    memo = Memo()
    for _ in range(4):
        with_memo = plan(snapshot, DEFAULT_CONFIG, memo=memo)
        assert _in_order(with_memo) == _in_order(plan(snapshot, DEFAULT_CONFIG))
        snapshot = replace(release(apply_plan(snapshot, with_memo)), now=snapshot.now + 1)


@examples(8)
@given(clusters())
def test_evictions_end(snapshot: Snapshot) -> None:
    """Left alone, a cluster comes to rest: no queue takes back for ever."""
    for _ in range(25):
        result = plan(snapshot, DEFAULT_CONFIG)
        snapshot = replace(release(apply_plan(snapshot, result)), now=snapshot.now + 0.01)

    assert plan(snapshot, DEFAULT_CONFIG).evictions == ()
