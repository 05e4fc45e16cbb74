"""Clusters and jobs that the benchmarks of the engine are made of."""

from __future__ import annotations

from collections.abc import Sequence

from scheduling.engine.types import (
    CPU,
    GPU,
    MEMORY,
    PODS,
    GangPhase,
    Job,
    Node,
    Queue,
    Role,
    Task,
    TaskState,
)

GIB = 2**30


def nodes(count: int, *, gpus: int = 8) -> tuple[Node, ...]:
    """Return equal GPU machines."""
    amounts = {CPU: 96_000, MEMORY: 768 * GIB, GPU: gpus * 1000, PODS: 110_000}
    return tuple(
        Node(f"node-{i:05}", amounts, labels={"zone": f"z{i % 4}", "host": f"node-{i:05}"})
        for i in range(count)
    )


def queues(count: int) -> tuple[Queue, ...]:
    """Return departments with teams below them."""
    tops = [Queue(f"dep{i}", weight=i + 1) for i in range(4)]
    leaves = [
        Queue(name, parent=f"dep{i % 4}", weight=1 + i % 3) for i, name in enumerate(teams(count))
    ]
    return (*tops, *leaves)


def teams(count: int) -> list[str]:
    """Return the names of the queues below the departments of `queues`."""
    return [f"team{i:03}" for i in range(count)]


def shapes(count: int) -> list[Role]:
    """Return roles of different sizes: most without GPUs, some with 1 to 4."""
    return [
        Role(
            "task",
            {
                CPU: 250 * (1 + i % 16),
                MEMORY: GIB * (1 + i % 7),
                **({GPU: 1000 * (1 + i % 4)} if i % 5 == 0 else {}),
            },
            replicas=1,
            min_available=1,
            node_selector={"zone": f"z{i % 4}"} if i % 3 == 0 else {},
        )
        for i in range(count)
    ]


def single(key: str, role: Role, queue: str, *, created: float, node: str | None = None) -> Job:
    """Return a job of one task, running where a node is given."""
    state = TaskState.RUNNING if node is not None else TaskState.PENDING
    return Job(
        key=key,
        name=key,
        queue=queue,
        roles=(role,),
        tasks=(Task(f"{key}-0", "task", 0, state, node, started_at=created),),
        min_available=1,
        created_at=created,
        phase=GangPhase.RUNNING if node is not None else GangPhase.INQUEUE,
    )


def occupants(
    count: int, role: Role, queue_names: Sequence[str], machines: Sequence[Node]
) -> list[Job]:
    """Return single running jobs, dealt out to queues and machines in turn."""
    return [
        single(
            f"run{i:06}",
            role,
            queue_names[i % len(queue_names)],
            created=float(i),
            node=machines[i % len(machines)].name,
        )
        for i in range(count)
    ]


def gang(key: str, queue: str, size: int, *, gpus: int = 1, created: float = 0.0) -> Job:
    """Return a waiting gang."""
    role = Role("worker", {CPU: 4000, MEMORY: 16 * GIB, GPU: gpus * 1000}, size, size)
    return Job(
        key=key,
        name=key,
        queue=queue,
        roles=(role,),
        tasks=tuple(Task(f"{key}-{i}", "worker", i) for i in range(size)),
        min_available=size,
        created_at=created,
        phase=GangPhase.INQUEUE,
    )
