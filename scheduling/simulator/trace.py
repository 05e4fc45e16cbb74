"""Readers of traces: rows of text in, arrivals and nodes out.

Source of the forms: Alibaba openb (cluster-trace-gpu-v2023), Microsoft Philly as published with
Chronus, SenseTime Helios (SC 2021), the Standard Workload Format 2.2, and Terrace's own record of
a day (JSON lines).
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from scheduling.engine.types import (
    CPU,
    GPU,
    MEMORY,
    PODS,
    Device,
    GangPhase,
    Job,
    Node,
    Queue,
    Requirement,
    Role,
    Task,
)
from scheduling.simulator.replay import Arrival

MIB = 2**20
GIB = 2**30
GPUS_OF_A_NODE = 8
SWF_COLUMNS = 18
MOST = 2**53
"""Whole numbers beyond it are not exact; NaN fails the comparison too."""
MOST_TASKS = 100_000
"""Of one job; a larger number is a slip, and each task takes memory."""
MODEL_LABEL = "terrace.dev/gpu-model"


class TraceError(ValueError):
    """A row that cannot be read; the text names line, column and value."""


def gang(  # noqa: PLR0913  # a job has that many sides; all are named
    key: str,
    *,
    queue: str,
    request: Mapping[str, int],
    tasks: int,
    arrives_at: float,
    owner: str = "",
    affinity: tuple[tuple[Requirement, ...], ...] = (),
    priority: int = 0,
) -> Job:
    """Return a rigid job of equal tasks, all of which must start together.

    Raises:
        TraceError: it has none, or too many to hold.
    """
    if not 1 <= tasks <= MOST_TASKS:
        raise TraceError(f"{key}: a job has 1 to {MOST_TASKS} tasks, not {tasks}")
    role = Role("worker", request, tasks, tasks, node_affinity=affinity)
    return Job(
        key=key,
        name=key,
        queue=queue,
        roles=(role,),
        tasks=tuple(Task(f"{key}-{index}", "worker", index) for index in range(tasks)),
        min_available=tasks,
        owner=owner,
        priority=priority,
        created_at=arrives_at,
        phase=GangPhase.PENDING,
    )


def gpu_nodes(count: int, *, gpus: int = GPUS_OF_A_NODE, cpu_milli: int = 96_000) -> list[Node]:
    """Return equal GPU servers with 768 GiB of memory."""
    amounts = {CPU: cpu_milli, MEMORY: 768 * GIB, GPU: gpus * 1000, PODS: 110_000}
    return [Node(f"node-{index:04}", amounts) for index in range(count)]


def read_philly(lines: Iterable[str], *, queue_by_user: bool = True) -> Iterator[Arrival]:
    """Read Philly jobs: one task up to 8 GPUs, then tasks of 8 (the last with the rest).

    A job of 0 GPUs asks for one CPU. Beside each GPU go 6 CPU and 48 GiB, what an eighth of
    a server of those days has; the trace does not say.
    """
    for number, row in enumerate(_table(lines), start=2):
        gpus = int(_amount(row, "num_gpu", number))
        tasks = max(1, -(-gpus // GPUS_OF_A_NODE))
        share = -(-gpus // tasks)
        request = {CPU: max(6000 * share, 1000), MEMORY: max(48 * share, 4) * GIB, PODS: 1000}
        if share:
            request[GPU] = share * 1000
        user = row.get("user") or "default"
        yield Arrival(
            gang(
                f"philly-{row['job_id']}",
                queue=user if queue_by_user else "default",
                request=request,
                tasks=tasks,
                arrives_at=_amount(row, "submit_time", number),
                owner=user,
            ),
            _amount(row, "duration", number),
        )


def read_philly_clusters(lines: Iterable[str]) -> tuple[list[Node], list[Queue]]:
    """Read the sizes of Philly's virtual clusters: nodes of 8 GPUs, a queue each with its min."""
    rows = [(f"vc_{row['vc']}", int(row["node num"])) for row in _table(lines)]
    nodes = gpu_nodes(sum(size for _, size in rows))
    queues = [
        Queue(name, min={GPU: size * GPUS_OF_A_NODE * 1000}, weight=size) for name, size in rows
    ]
    return nodes, queues


def walled(queues: Iterable[Queue]) -> list[Queue]:
    """Return the queues with their min as a wall: nothing is lent, nothing borrowed."""
    return [
        Queue(q.name, q.parent, q.min, {**q.max, **q.min}, q.weight, lend_min=False) for q in queues
    ]


def read_queues(text: str) -> Iterator[Queue]:
    """Read a tree of queues: JSON, name -> parent, min, max (as in the engine), weight."""
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TraceError(f"queues: {error}") from None
    if not isinstance(rows, dict):
        raise TraceError("queues: a JSON object is expected, name -> settings")
    for name, row in rows.items():
        if not isinstance(row, dict):
            raise TraceError(f"queues, {name}: a JSON object is expected, such as {{}}")
        unknown = sorted(set(row) - {"parent", "min", "max", "weight", "priority"})
        if unknown:
            raise TraceError(f"queues, {name}: {unknown[0]} is not known")
        if row.get("parent") is not None and row["parent"] not in rows:
            raise TraceError(f"queues, {name}, parent: there is no queue {row['parent']!r}")
        try:
            yield Queue(
                name,
                row.get("parent"),
                {str(key): int(value) for key, value in row.get("min", {}).items()},
                {str(key): int(value) for key, value in row.get("max", {}).items()},
                int(row.get("weight", 1)),
                int(row.get("priority", 0)),
            )
        except (TypeError, ValueError, AttributeError, OverflowError) as error:
            raise TraceError(f"queues, {name}: {error}") from None


def read_helios(lines: Iterable[str]) -> Iterator[Arrival]:
    """Read a Helios cluster log: `gpu_num` GPUs on `node_num` machines, a queue per `vc`.

    Submit times are local times without a zone; they are read as UTC: only differences count.
    """
    for number, row in enumerate(_table(lines), start=2):
        gpus = int(_amount(row, "gpu_num", number))
        tasks = max(int(_amount(row, "node_num", number)), 1)
        cpus = int(_amount(row, "cpu_num", number))
        request = {CPU: max(cpus * 1000 // tasks, 1000), PODS: 1000}
        if gpus:
            request[GPU] = -(-gpus // tasks) * 1000
        try:
            submitted = datetime.fromisoformat(row["submit_time"]).replace(tzinfo=UTC)
        except (KeyError, TypeError, ValueError):
            raise TraceError(
                f"line {number}, submit_time: {row.get('submit_time')!r} is not a time"
            ) from None
        yield Arrival(
            gang(
                f"helios-{row['job_id']}",
                queue=row.get("vc") or "default",
                request=request,
                tasks=tasks,
                arrives_at=submitted.timestamp(),
                owner=row.get("user") or "",
            ),
            _amount(row, "duration", number),
        )


def read_openb_nodes(lines: Iterable[str]) -> Iterator[Node]:
    """Read openb's machines; each GPU is a device, its model a label."""
    for number, row in enumerate(_table(lines), start=2):
        gpus = int(_amount(row, "gpu", number))
        name = row["sn"]
        yield Node(
            name,
            {
                CPU: int(_amount(row, "cpu_milli", number)),
                MEMORY: int(_amount(row, "memory_mib", number)) * MIB,
                PODS: 1_000_000,
                **({GPU: gpus * 1000} if gpus else {}),
            },
            labels={MODEL_LABEL: row["model"]} if row.get("model") else {},
            devices=tuple(Device(f"{name}/{index}", index) for index in range(gpus)),
        )


def read_openb_pods(lines: Iterable[str], *, queue: str = "default") -> Iterator[Arrival]:
    """Read openb's pods as jobs of one task; a part of a GPU is asked for in thousandths."""
    for number, row in enumerate(_table(lines), start=2):
        gpus = int(_amount(row, "num_gpu", number))
        share = int(_amount(row, "gpu_milli", number)) if gpus else 0
        request = {
            CPU: int(_amount(row, "cpu_milli", number)),
            MEMORY: int(_amount(row, "memory_mib", number)) * MIB,
            PODS: 1000,
        }
        if gpus:
            request[GPU] = gpus * share
        models = tuple(m for m in (row.get("gpu_spec") or "").split("|") if m)
        arrives = _amount(row, "creation_time", number)
        yield Arrival(
            gang(
                row["name"],
                queue=queue,
                request=request,
                tasks=1,
                arrives_at=arrives,
                affinity=((Requirement(MODEL_LABEL, "In", models),),) if models else (),
            ),
            max(_amount(row, "deletion_time", number) - arrives, 0.0),
        )


def read_swf(lines: Iterable[str], *, cores_of_a_task: int = 1) -> Iterator[Arrival]:
    """Read the Standard Workload Format: 18 columns a line, `;` starts a comment.

    Column 2 submit time, 4 run time, 5 processors, 8 processors asked for, 9 time asked for,
    10 memory per processor in KiB, 12 user, 15 queue. -1 is unknown. Jobs that never ran
    (run time or processors unknown) are left out, as the format's own simulators do.
    """
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if not text or text.startswith(";"):
            continue
        fields = text.split()
        if len(fields) < SWF_COLUMNS:
            raise TraceError(f"line {number}: {len(fields)} columns, SWF has {SWF_COLUMNS}")
        try:
            values = [float(field) for field in fields[:SWF_COLUMNS]]
        except ValueError:
            raise TraceError(f"line {number}: a column is not a number: {text[:80]!r}") from None
        if not all(-MOST <= value <= MOST for value in values):
            raise TraceError(f"line {number}: a column is out of range: {text[:80]!r}")
        processors = values[7] if values[7] > 0 else values[4]
        if values[3] < 0 or processors <= 0:
            continue
        tasks = max(1, round(processors / cores_of_a_task))
        request = {CPU: cores_of_a_task * 1000, PODS: 1000}
        if values[9] > 0:
            request[MEMORY] = int(values[9]) * 1024 * cores_of_a_task
        queue = f"queue-{int(values[14])}" if values[14] >= 0 else "default"
        yield Arrival(
            gang(
                f"swf-{int(values[0])}",
                queue=queue,
                request=request,
                tasks=tasks,
                arrives_at=values[1],
                owner=f"user-{int(values[11])}",
            ),
            values[3],
        )


def read_recorded(lines: Iterable[str]) -> Iterator[Arrival]:
    """Read a recorded day: one JSON object a line.

    Keys: `job`, `queue`, `owner`, `submitted_at` (seconds), `seconds`, `tasks`, `request`
    (resource -> amount as in the engine), and where they apply `priority`.
    """
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            yield Arrival(
                gang(
                    str(row["job"]),
                    queue=str(row["queue"]),
                    request={str(name): int(value) for name, value in row["request"].items()},
                    tasks=int(row["tasks"]),
                    arrives_at=float(row["submitted_at"]),
                    owner=str(row.get("owner", "")),
                    priority=int(row.get("priority", 0)),
                ),
                float(row["seconds"]),
            )
        except KeyError as error:
            raise TraceError(f"line {number}: {error.args[0]} is missing") from None
        except (TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
            raise TraceError(f"line {number}: {error}") from None


def _table(lines: Iterable[str]) -> Iterator[dict[str, Any]]:  # Any: as csv has it
    """Read rows of comma-separated values, the first of which names the columns.

    Raises:
        TraceError: a field is longer than a row of a trace can be.
    """
    try:
        yield from csv.DictReader(lines)
    except csv.Error as error:
        raise TraceError(f"not comma-separated values: {error}") from None


def _amount(row: Mapping[str, str | None], column: str, number: int) -> float:
    """Return a column as a number that is not negative; an empty one is 0."""
    text = row.get(column)
    if text is None:
        raise TraceError(f"line {number}: no column {column}")
    try:
        value = float(text or 0)
    except ValueError:
        raise TraceError(f"line {number}, {column}: {text!r} is not a number") from None
    if not 0 <= value <= MOST:
        raise TraceError(f"line {number}, {column}: {text!r} is out of range")
    return value
