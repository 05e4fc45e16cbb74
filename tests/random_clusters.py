"""Random clusters in which queues, gangs and users contend, with every rule that jobs may state.

Hypothesis likes small numbers: left to itself it draws clusters in which nobody lacks anything. So
it draws only the dice here, and the sizes are chosen such that most clusters are full.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from random import Random

from hypothesis import strategies as st

from scheduling.engine.types import (
    CPU,
    GPU,
    JOBS,
    Amounts,
    Device,
    DisruptionBudget,
    GangPhase,
    HyperNode,
    Job,
    Node,
    PodTerm,
    Queue,
    QueuePolicy,
    QueueState,
    Quota,
    Requirement,
    Role,
    Snapshot,
    SpreadRule,
    SubGroupPolicy,
    Taint,
    Task,
    TaskState,
    Toleration,
    TopologyMode,
    TopologyRule,
)

NOW = 1000.0
OFTEN, SELDOM = 0.5, 0.15


def clusters(
    *, has_rules: bool | None = None, has_walls: bool | None = None
) -> st.SearchStrategy[Snapshot]:
    """Return a strategy: clusters with rules about topology, neighbours and so on, or without.

    Unless told otherwise there are walls around queues in some of those with rules. Of 300 clusters
    without rules a plan evicts in 48 %, reclaims in 12 %, and makes or uses a reservation in 57 %;
    of those with rules spreading decides where tasks go in 16 %, ports in 20 %, taints in 31 %,
    anti-affinity in 21 %, and a hard domain in 3 %.
    """
    seeds = st.integers(0, 2**63)
    return seeds.map(lambda seed: cluster(Random(seed), has_rules, has_walls=has_walls))


def cluster(
    dice: Random, has_rules: bool | None = None, *, has_walls: bool | None = None
) -> Snapshot:
    """Return a cluster, a tree of queues, and jobs, most of which run."""
    if has_rules is None:
        has_rules = dice.random() < OFTEN
    if has_walls is None:
        has_walls = has_rules and dice.random() < 2 * SELDOM
    nodes = tuple(_node(dice, i, has_rules) for i in range(dice.randint(1, 6)))
    domains = _domains(dice, nodes) if has_rules and dice.random() < OFTEN else ()
    queues = _queues(dice, total=sum(n.allocatable[GPU] for n in nodes) // 1000)
    leaves = leaves_of(queues)
    first = dice.choice(leaves)  # its jobs came early and took most of the room
    books = _Books(nodes, queues, domains)
    jobs = []
    for i in range(dice.randint(4, 14)):
        is_early = dice.random() < 0.6
        is_of_first = is_early and dice.random() < 0.7
        queue = first if is_of_first else dice.choice(leaves)
        job = waiting_job(dice, f"j{i}", queue, has_rules=has_rules, has_domains=bool(domains))
        jobs.append(books.start(job, dice) if is_early else job)
    return Snapshot(
        NOW,
        nodes,
        queues,
        tuple(jobs),
        hypernodes=domains,
        quotas=_walls(dice, leaves) if has_walls else (),
        disruption_budgets=(DisruptionBudget("frail", {"kind": "frail"}, dice.randint(0, 1)),)
        if has_rules
        else (),
    )


def leaves_of(queues: Iterable[Queue]) -> list[str]:
    """Return the queues that jobs may be in."""
    parents = {queue.parent for queue in queues}
    return [queue.name for queue in queues if queue.name not in parents]


def _node(dice: Random, i: int, has_rules: bool) -> Node:
    name, size = f"n{i}", dice.choice([1, 2, 2, 4, 4, 8])
    return Node(
        name,
        {CPU: 1000 * dice.choice([4, 8, 8, 16]), GPU: size * 1000},
        labels={"zone": f"z{i % 2}", "kubernetes.io/hostname": name},
        taints=(Taint("only", "x"),) if has_rules and dice.random() < SELDOM else (),
        is_schedulable=dice.random() < 0.9,
        devices=tuple(Device(f"{name}-{k}", k) for k in range(size)) if dice.random() < 0.5 else (),
    )


def _domains(dice: Random, nodes: tuple[Node, ...]) -> tuple[HyperNode, ...]:
    """Return racks of one to three machines, and rows of two racks."""
    names = [n.name for n in nodes]
    cuts = sorted({0, len(names), *(dice.randint(0, len(names)) for _ in range(2))})
    racks = [
        HyperNode(f"rack{i}", 1, nodes=frozenset(names[a:b]))
        for i, (a, b) in enumerate(pairwise(cuts))
    ]
    rows = [
        HyperNode(f"row{i}", 2, members=tuple(r.name for r in racks[2 * i : 2 * i + 2]))
        for i in range((len(racks) + 1) // 2)
    ]
    return (*racks, *rows)


def _queues(dice: Random, total: int) -> tuple[Queue, ...]:
    """Return one to eight queues in up to three levels."""
    depth: dict[str, int] = {}
    queues: list[Queue] = []
    for i in range(dice.randint(1, 8)):
        above = dice.choice([None, *(name for name, level in depth.items() if level < 2)])
        name = f"q{i}"
        depth[name] = depth[above] + 1 if above is not None else 0
        most: Amounts = {}
        if dice.random() < SELDOM:
            most = {GPU: 1000 * dice.randint(2, total + 2)}
        if dice.random() < SELDOM:
            most = {**most, CPU: 1000 * dice.randint(4, 24)}
        least: Amounts = {GPU: 1000 * dice.choice([0, 0, 0, 0, 1, 2, 4])}
        if dice.random() < SELDOM:
            least = {**least, CPU: 1000 * dice.randint(1, 8)}
        queues.append(
            Queue(
                name,
                parent=above,
                min={r: min(a, most.get(r, a)) for r, a in least.items()},
                max=most,
                weight=dice.randint(1, 4),
                priority=dice.choice([0, 0, 0, 0, 1]),
                lend_min=dice.random() < 0.8,
                reclaimable=dice.random() < 0.9,
                policy=dice.choice([QueuePolicy.PRIORITY, *QueuePolicy]),
                state=dice.choice([QueueState.OPEN] * 40 + [QueueState.CLOSING]),
            )
        )
    return tuple(queues)


def waiting_job(
    dice: Random, key: str, queue: str, *, has_rules: bool = False, has_domains: bool = False
) -> Job:
    """Return a job of one or two roles, of which nothing runs; sizes are mixed."""
    job = _plain_job(dice, key, queue)
    return _with_rules(dice, job, has_domains=has_domains) if has_rules else job


def _plain_job(dice: Random, key: str, queue: str) -> Job:
    roles = []
    for name in ("a", "b")[: dice.choice([1, 1, 2])]:
        replicas = dice.randint(1, 4)
        gpu = dice.choice([0, 1000, 1000, 1000, 1000, 2000, 2000, 4000, 500])
        cpu = dice.choice([500, 500, 500, 1000, 2000])
        is_nothing = dice.random() < 0.05
        roles.append(
            Role(
                name,
                {} if is_nothing else {CPU: cpu, GPU: gpu} if gpu else {CPU: cpu},
                replicas,
                dice.choice([0, 0, 0, 0, replicas, dice.randint(0, replicas)]),
                priority=dice.choice([0, 0, 0, 1]),
                preemptable=dice.random() < 0.85,
                may_evict=dice.random() < 0.95,
                labels={"kind": dice.choice(["frail", "sound"])},
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
        min_available=dice.choice([1, 1, total, dice.randint(1, total)]),
        priority=dice.choice([0, 0, 1, 2]),
        owner=dice.choice(["", "x", "y"]),
        created_at=float(dice.randint(0, 5)),
        phase=dice.choice([GangPhase.PENDING, GangPhase.INQUEUE]),
        sla_waiting_seconds=dice.choice([None, None, 10.0, 5000.0]),
        time_limit_seconds=dice.choice([None, None, 100.0, 3000.0]),
        is_runnable=dice.random() < 0.97,
    )


def _with_rules(dice: Random, job: Job, *, has_domains: bool) -> Job:
    """Return the job with some of what a job may ask of nodes and neighbours."""

    def ruled(role: Role) -> Role:
        like = (Requirement("kind", "In", (role.labels["kind"],)),)
        key = dice.choice(["zone", "kubernetes.io/hostname"])
        match dice.randint(0, 9):
            case 0:
                return replace(role, node_selector={"zone": dice.choice(["z0", "z1"])})
            case 1:
                return replace(role, ports=(80,))
            case 2:
                return replace(role, pod_terms=(PodTerm(like, key, is_anti=dice.random() < 0.7),))
            case 3 | 4 | 5:
                rule = SpreadRule(dice.randint(1, 2), key, like, is_required=dice.random() < 0.9)
                return replace(role, spread=(rule,))
            case 6:
                return replace(role, tolerations=(Toleration("only", value="x"),))
            case _:
                return role

    job = replace(job, roles=tuple(ruled(role) for role in job.roles))
    return _in_domains(dice, job) if has_domains else job


def _in_domains(dice: Random, job: Job) -> Job:
    """Return the job with a topology rule, sub-groups, both or neither."""
    if dice.random() < OFTEN:
        mode = dice.choice(list(TopologyMode))
        job = replace(job, topology=TopologyRule(mode, dice.randint(1, 2)))
    if dice.random() < SELDOM:
        rule = TopologyRule(TopologyMode.HARD, dice.randint(1, 2))
        least = max(role.replicas for role in job.roles)
        policy = SubGroupPolicy("parts", ("kind",), dice.randint(1, least), 1, rule)
        job = replace(job, sub_groups=(policy,))
    return job


def _walls(dice: Random, leaves: list[str]) -> tuple[Quota, ...]:
    """Return one to three walls around queues, of everybody there, of each user or of one."""
    walls = []
    for i in range(dice.randint(1, 3)):
        hard: Amounts = {GPU: 1000 * dice.randint(0, 12)}
        if dice.random() < 2 * SELDOM:
            hard = {**dice.choice([hard, {}]), JOBS: 1000 * dice.randint(0, 3)}
        walls.append(
            Quota(
                f"wall{i}",
                "",
                hard,
                queues=frozenset(dice.sample(leaves, dice.randint(1, len(leaves)))),
                owner=dice.choice(["", "", "x"]),
                is_each=dice.random() < OFTEN,
                exempt=frozenset(dice.choice(["", "", "y"])),
            )
        )
    return tuple(walls)


class _Books:
    """What is left of nodes and queues while jobs are started."""

    def __init__(
        self, nodes: tuple[Node, ...], queues: tuple[Queue, ...], domains: tuple[HyperNode, ...]
    ) -> None:
        self.nodes = nodes
        self.free = {n.name: dict(n.allocatable) for n in nodes}
        self.cards = {n.name: [d.id for d in n.devices] for n in nodes}
        self.room = {q.name: dict(q.max) for q in queues}
        self.parents = {q.name: q.parent for q in queues}
        self.racks = [d.nodes for d in domains if d.nodes]

    def start(self, job: Job, dice: Random) -> Job:
        """Return the job with its minimum running and some more of it, if the books allow it."""
        has_rules = any(r.ports or r.pod_terms for r in job.roles)
        if has_rules or not job.is_runnable or any(r.request.get(GPU) == 500 for r in job.roles):
            return job  # what a plan starts
        rack = dice.choice(self.racks) if job.topology is not None else None
        kept = (
            {name: dict(left) for name, left in self.free.items()},
            {name: list(left) for name, left in self.cards.items()},
            {name: dict(left) for name, left in self.room.items()},
        )
        started = dice.choice([dice.uniform(0, NOW), NOW - 1])
        tasks = [self._start_task(job, task, rack, started) for task in job.tasks]
        held = [task.role for task in tasks if task.state is not TaskState.PENDING]
        if len(held) < job.min_available or any(
            held.count(role.name) < role.min_available for role in job.roles
        ):
            self.free, self.cards, self.room = kept
            return job
        return replace(job, tasks=tuple(tasks), phase=GangPhase.RUNNING)

    def _start_task(
        self, job: Job, task: Task, rack: frozenset[str] | None, started: float
    ) -> Task:
        role = next(r for r in job.roles if r.name == task.role)
        path: list[str] = []
        queue: str | None = job.queue
        while queue is not None:
            path.append(queue)
            queue = self.parents[queue]
        places = [
            node
            for node in self.nodes
            if not node.taints
            and role.node_selector.items() <= node.labels.items()
            and (rack is None or node.name in rack)
            and all(self.free[node.name].get(r, 0) >= a for r, a in role.request.items())
        ]
        if not places or any(
            self.room[q].get(r, amount) < amount for q in path for r, amount in role.request.items()
        ):
            return task
        node = places[0]
        for resource, amount in role.request.items():
            self.free[node.name][resource] -= amount
            for name in path:
                if resource in self.room[name]:
                    self.room[name][resource] -= amount
        count = role.request.get(GPU, 0) // 1000 if node.devices else 0
        cards = tuple(self.cards[node.name].pop() for _ in range(count))
        return replace(
            task, state=TaskState.RUNNING, node=node.name, devices=cards, started_at=started
        )
