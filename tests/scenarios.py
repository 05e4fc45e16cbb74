"""Text scenarios for the engine: a cluster in a few lines, and a plan that is easy to ask.

    nodes  n1 n2: gpu=4 cpu=16            several names share what follows
    queue  team: parent=org min.gpu=2 max.gpu=8 weight=3
    job    team/a: 8 x gpu=1 min=2 running n1*4 n2*2
    job    team/b: 1 x cpu=1 role=ps ; 4 x gpu=1 role=worker min=5 created=3

Amounts: cpu in cores, memory in GiB, everything else in units. Tasks that are not said to be
running or releasing are pending; task i of job `team/a` is `team/a-i`, of several roles
`team/a-worker-i`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from scheduling.engine.after import apply_plan
from scheduling.engine.cycle import DEFAULT_CONFIG
from scheduling.engine.cycle import plan as make_plan
from scheduling.engine.types import (
    CPU,
    GPU,
    MEMORY,
    ActionConfig,
    Config,
    Device,
    GangPhase,
    Job,
    Node,
    Plan,
    Queue,
    QueuePolicy,
    QueueState,
    Reason,
    Role,
    Snapshot,
    Taint,
    Task,
    TaskState,
    Toleration,
)
from scheduling.engine.verify import check
from scheduling.simulator.state import change_tasks, release

GIB = 2**30
NAMES = {"cpu": CPU, "memory": MEMORY, "gpu": GPU}
STATES = {"running": TaskState.RUNNING, "bound": TaskState.BOUND, "releasing": TaskState.RELEASING}


def amount(name: str, text: str) -> tuple[str, int]:
    """Return the resource's full name and the amount in the engine's unit."""
    resource = NAMES.get(name, name)
    unit = GIB if resource == MEMORY else 1000
    return resource, round(float(text) * unit)


def split_options(words: list[str]) -> tuple[dict[str, str], list[str]]:
    """Return the `key=value` words as a mapping, and the other words."""
    options = dict(word.split("=", 1) for word in words if "=" in word)
    return options, [word for word in words if "=" not in word]


def read(text: str, *, now: float = 1000.0) -> Snapshot:
    """Return the snapshot that a text scenario describes."""
    nodes: list[Node] = []
    queues: list[Queue] = []
    jobs: list[Job] = []
    for line in filter(None, (line.strip() for line in text.splitlines())):
        kind, _, rest = line.partition(" ")
        head, _, body = rest.strip().partition(":")
        if kind == "nodes":
            nodes.extend(_node(name, body) for name in head.split())
        elif kind == "queue":
            queues.append(_queue(head.strip(), body))
        elif kind == "job":
            jobs.append(_job(head.strip(), body, position=len(jobs)))
        else:
            raise ValueError(f"a line starts with nodes, queue or job: {line!r}")
    return Snapshot(now=now, nodes=tuple(nodes), queues=tuple(queues), jobs=tuple(jobs))


def _node(name: str, body: str) -> Node:
    options, flags = split_options(body.split())
    labels = {k[6:]: options.pop(k) for k in list(options) if k.startswith("label.")}
    taints = tuple(Taint(k[6:], options.pop(k)) for k in list(options) if k.startswith("taint."))
    runtimes = options.pop("runtimes", None)
    allocatable = dict(amount(k, v) for k, v in options.items())
    count = allocatable.get(GPU, 0) // 1000 if "devices" in flags else 0
    return Node(
        name=name,
        allocatable=allocatable,
        labels=labels,
        taints=taints,
        is_schedulable="cordoned" not in flags,
        devices=tuple(
            Device(f"{name}-gpu{i}", i, numa_node=2 * i // count, is_healthy=f"bad{i}" not in flags)
            for i in range(count)
        ),
        runtimes=frozenset(runtimes.split(",")) if runtimes is not None else None,
    )


def _queue(name: str, body: str) -> Queue:
    options, flags = split_options(body.split())
    return Queue(
        name=name,
        parent=options.get("parent"),
        min=dict(amount(k[4:], v) for k, v in options.items() if k.startswith("min.")),
        max=dict(amount(k[4:], v) for k, v in options.items() if k.startswith("max.")),
        weight=int(options.get("weight", "1")),
        priority=int(options.get("priority", "0")),
        lend_min="keep_min" not in flags,
        reclaimable="unreclaimable" not in flags,
        state=QueueState(options.get("state", "Open")),
        policy=QueuePolicy(options.get("policy", "priority")),
    )


ROLE_OPTIONS = {"role", "rmin", "image", "tolerate", "rpriority"}


def _job(name: str, body: str, *, position: int) -> Job:
    queue = name.rpartition("/")[0]
    options: dict[str, str] = {}
    roles: list[Role] = []
    tasks: list[Task] = []
    parts = body.split(";")
    for part in parts:
        count, _, rest = part.partition(" x ")
        found, words = split_options(rest.split())
        role = _role(int(count), found, default=f"role{len(roles)}")
        prefix = name if len(parts) == 1 else f"{name}-{role.name}"
        tasks.extend(_tasks(prefix, role, words))
        roles.append(role)
        options.update(found)
    replicas = sum(role.replicas for role in roles)
    return Job(
        key=name,
        name=name.rpartition("/")[2],
        queue=queue,
        roles=tuple(roles),
        tasks=tuple(tasks),
        min_available=int(options.get("min", replicas)),
        priority=int(options.get("priority", "0")),
        owner=options.get("owner", ""),
        created_at=float(options.get("created", position)),
        phase=GangPhase(options.get("phase", "Pending")),
        sla_waiting_seconds=float(options["sla"]) if "sla" in options else None,
        time_limit_seconds=float(options["limit"]) if "limit" in options else None,
    )


def _role(count: int, options: dict[str, str], *, default: str) -> Role:
    amounts = {k: v for k, v in options.items() if k in NAMES or "/" in k or k == "pods"}
    return Role(
        name=options.get("role", default),
        request=dict(amount(k, v) for k, v in amounts.items()),
        replicas=count,
        min_available=int(options.get("rmin", "0")),
        priority=int(options.get("rpriority", "0")),
        node_selector={k[7:]: v for k, v in options.items() if k.startswith("select.")},
        tolerations=tuple(
            Toleration(key=key, operator="Exists")
            for key in options.get("tolerate", "").split(",")
            if key
        ),
        image=options.get("image", ""),
        preemptable=options.get("preemptable", "yes") == "yes",
    )


def _tasks(prefix: str, role: Role, words: list[str]) -> list[Task]:
    places: list[tuple[TaskState, str]] = []
    state = TaskState.PENDING
    for word in words:
        if word in STATES or word == "pending":
            state = STATES.get(word, TaskState.PENDING)
            continue
        node, _, count = word.partition("*")
        places.extend([(state, node)] * int(count or "1"))
    return [
        Task(f"{prefix}-{i}", role.name, i, places[i][0], places[i][1], started_at=float(i))
        if i < len(places)
        else Task(f"{prefix}-{i}", role.name, i)
        for i in range(role.replicas)
    ]


@dataclass(frozen=True, slots=True)
class Outcome:
    """A plan with short answers."""

    snapshot: Snapshot
    plan: Plan

    @property
    def evicted(self) -> list[str]:
        """Tasks evicted, sorted."""
        return sorted(e.task for e in self.plan.evictions)

    @property
    def binds(self) -> dict[str, str]:
        """Task -> node."""
        return {b.task: b.node for b in self.plan.binds}

    @property
    def order(self) -> list[str]:
        """Jobs in the order in which their tasks were bound."""
        return [b.job for b in self.plan.binds]

    def bound(self, job: str) -> int:
        """Return how many tasks of a job were bound."""
        return sum(b.job == job for b in self.plan.binds)

    def pipelined(self, job: str) -> int:
        """Return how many tasks of a job were promised room."""
        return sum(p.job == job for p in self.plan.pipelined)

    def reason(self, job: str) -> Reason:
        """Return why a job waits."""
        return self.plan.job_reasons[job]

    @property
    def held(self) -> dict[str, int]:
        """Job -> tasks that it holds once the plan is carried out."""
        after = apply_plan(self.snapshot, self.plan)
        return dict(
            Counter(
                job.key
                for job in after.jobs
                for task in job.tasks
                if task.state in (TaskState.RUNNING, TaskState.BOUND)
            )
        )

    def deserved(self, resource: str = GPU) -> dict[str, float]:
        """Return queue -> what it deserves of a resource, in units."""
        return {s.queue: s.deserved.get(resource, 0) / 1000 for s in self.plan.shares}


def with_actions(config: Config, actions: str) -> Config:
    """Return a configuration with other actions, each with the arguments that it had."""
    known: Mapping[str, ActionConfig] = {a.name: a for a in config.actions}
    return replace(config, actions=tuple(known.get(n, ActionConfig(n)) for n in actions.split()))


def cycle(
    scenario: str | Snapshot,
    *,
    actions: str | None = None,
    config: Config = DEFAULT_CONFIG,
    now: float = 1000.0,
) -> Outcome:
    """Plan one cycle; the independent verifier must accept it."""
    snapshot = read(scenario, now=now) if isinstance(scenario, str) else scenario
    chosen = config if actions is None else with_actions(config, actions)
    result = make_plan(snapshot, chosen)
    assert check(snapshot, result, chosen) == []
    return Outcome(snapshot, result)


def settled(outcome: Outcome, *, seconds: float = 1.0) -> Snapshot:
    """Return the state after a plan: binds run, victims are gone and wait again."""
    after = release(apply_plan(outcome.snapshot, outcome.plan))
    return replace(after, now=after.now + seconds)


def run(scenario: str | Snapshot, *, cycles: int, config: Config = DEFAULT_CONFIG) -> Outcome:
    """Plan and carry out several cycles; return the last."""
    outcome = cycle(scenario, config=config)
    for _ in range(cycles - 1):
        outcome = cycle(settled(outcome), config=config)
    return outcome


def finish(snapshot: Snapshot, *jobs: str) -> Snapshot:
    """Return the snapshot with all live tasks of some jobs succeeded."""
    ended = {t.key for j in snapshot.jobs if j.key in jobs for t in j.tasks}
    return change_tasks(
        snapshot,
        lambda t: replace(t, state=TaskState.SUCCEEDED, node=None) if t.key in ended else t,
    )
