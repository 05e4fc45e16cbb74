"""A virtual clock around engine and lifecycle: jobs arrive, run, are evicted and end.

1. Take all events up to the next cycle: arrivals, ends of attempts, ends of graces, timers.
2. If one of them changed something, or a time that the engine waits for has come, plan.
3. Carry the plan out: binds become attempts that end after their time, victims are stopped.

Nothing here reads a clock or a random number: the same trace gives the same day.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from statistics import fmean

from scheduling.engine.config import DEFAULT_CONFIG
from scheduling.engine.cycle import Memo, plan
from scheduling.engine.types import (
    GPU,
    Config,
    HyperNode,
    Job,
    Node,
    Plan,
    Queue,
    Reservation,
    Snapshot,
)
from scheduling.engine.types import TaskState as EngineState
from scheduling.lifecycle.events import LifecycleAction, PolicyEvent
from scheduling.lifecycle.states import FINISHED_PHASES, JobPhase, StopReason, TaskState
from scheduling.lifecycle.values import ActionDue, AttemptEvent, DelayedAction, Policy
from scheduling.simulator.life import LIVE, Delayed, Life, SimulatedTask, Stopped

RESTART_WHEN_EVICTED = (Policy(LifecycleAction.RESTART_JOB, (PolicyEvent.POD_EVICTED,)),)
"""What a data-parallel training wants: without one of its workers the others can only wait."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job of a trace: when it comes, and for how long its tasks run once they have started."""

    job: Job
    seconds: float
    policies: tuple[Policy, ...] = RESTART_WHEN_EVICTED


@dataclass(frozen=True, slots=True)
class World:
    """The cluster that a trace is played on."""

    nodes: tuple[Node, ...]
    queues: tuple[Queue, ...]
    hypernodes: tuple[HyperNode, ...] = ()


@dataclass(frozen=True, slots=True)
class Settings:
    """How the virtual cluster behaves; all in seconds."""

    cycle_seconds: float = 1.0
    """Cycles happen at multiples of it, and only when there is something new to decide."""
    start_seconds: float = 0.0
    """From the bind to the first second of work: image, start of processes."""
    grace_seconds: float = 0.0
    """How long an evicted task still holds its place."""
    checkpoint_seconds: float | None = None
    """An evicted job goes on from its last checkpoint of this interval; None: from the start."""
    until: float = math.inf
    """Stop the day here, whatever still waits."""
    most_cycles: int | None = None
    """Stop after so many cycles."""
    start: float = 0.0
    """Multiples of `cycle_seconds` are counted from here."""
    is_gathering: bool = False
    """Spread `most_cycles` over all that is to happen: a cycle sees as much at once as that takes,
    at the mean of its instants, so that no time is lost on the whole."""
    awaited: frozenset[str] = frozenset()
    """Stop the day when all these jobs have started."""


@dataclass(slots=True)
class Record:
    """What became of one job; times are seconds of the trace, amounts as in the engine."""

    job: Job
    seconds: float
    started_at: float | None = None
    """When its gang first stood complete."""
    ended_at: float | None = None
    evictions: int = 0
    """Attempts that others ended; what stopped with them (a gang's rest) is not counted."""
    lost_task_seconds: float = 0.0
    """Task-seconds that were run and had to be run again."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The cluster after one cycle."""

    at: float
    allocated: Mapping[str, Mapping[str, int]]
    """Queue -> amounts, for the leaves."""
    deserved: Mapping[str, Mapping[str, int]]
    waiting: Mapping[str, int]
    """Queue -> tasks that wait."""
    used: Mapping[str, int]
    """Amounts held in all."""
    fragmentation: float | None
    """Share of the free GPUs that lies on partly taken machines; None where none is free."""


@dataclass(slots=True)
class Day:
    """Everything that a replay saw."""

    world: World
    records: list[Record]
    samples: list[Sample] = field(default_factory=list)
    cycles: int = 0
    ended_at: float = 0.0


class _Kind(IntEnum):
    """Order of events of the same instant: what ends makes room before what arrives asks."""

    STARTED = 0
    ENDED = 1
    GONE = 2
    DUE = 3
    ARRIVED = 4
    WAKE = 5


@dataclass(frozen=True, slots=True)
class _OfAttempt:
    """Something of one attempt of a task; of an older one it is late and changes nothing."""

    task: str
    attempt: int


@dataclass(frozen=True, slots=True)
class _Due:
    """A delayed action of a job."""

    job: str
    action: DelayedAction


_What = _OfAttempt | _Due | str | None
"""The event's subject; a text is the job that arrives, None only starts a cycle."""

Check = Callable[[Snapshot, Plan], None]


class Replay:
    """One day on a virtual cluster; `run` plays it to its end."""

    def __init__(
        self,
        world: World,
        arrivals: Iterable[Arrival],
        *,
        config: Config = DEFAULT_CONFIG,
        settings: Settings | None = None,
        check: Check | None = None,
        like: Snapshot | None = None,
    ) -> None:
        """Take a cluster and a trace; `check` sees every snapshot with its plan.

        `like`: what the snapshots have besides the world and the jobs: quotas, budgets, shard.
        """
        self.world = world
        self.config = config
        self.settings = settings or Settings()
        self.check = check
        self._base = replace(
            like or Snapshot(0.0, (), (), ()),
            nodes=world.nodes,
            queues=world.queues,
            hypernodes=world.hypernodes,
        )
        self.arrivals = list(arrivals)
        self.records = {a.job.key: Record(a.job, a.seconds) for a in self.arrivals}
        self.day = Day(world, list(self.records.values()))
        self._arrival = {a.job.key: a for a in self.arrivals}
        self._lives: dict[str, Life] = {}
        self._jobs: dict[str, Job] = {}
        self._job_of_task: dict[str, str] = {}
        self._left: dict[str, float] = {}
        self._events: list[tuple[float, int, int, _What]] = []
        self._order = 0
        self._reservations: tuple[Reservation, ...] = ()
        self._version = 0
        self._memo = Memo()
        self._used: dict[str, int] = {}
        self._gpus_held: dict[str, int] = {}
        self._awaited = set(self.settings.awaited)
        for arrival in self.arrivals:
            self._push(arrival.job.created_at, _Kind.ARRIVED, arrival.job.key)

    def run(self) -> Day:
        """Play the trace until nothing is left to happen, or to the end that the settings name."""
        while self._goes_on():
            now, until = self._next_cycle()
            self._take_events(until)
            self._cycle(now)
            self.day.ended_at = now
        return self.day

    def resume(self, snapshot: Snapshot, left: Mapping[str, float]) -> None:
        """Begin in the middle of a day: what runs goes on for the seconds that `left` names.

        Jobs of the snapshot need no arrival; one without an entry in `left` never ends.
        """
        for job in snapshot.jobs:
            life = Life.resume(job, policies=RESTART_WHEN_EVICTED)
            seconds = left.get(job.key, math.inf)
            self.records[job.key] = Record(job, seconds)
            self._arrival[job.key] = Arrival(job, seconds)
            self._left[job.key] = seconds
            self._lives[job.key] = life
            self._jobs[job.key] = job
            self._job_of_task.update(dict.fromkeys(life.by_key, job.key))
            for task in life.tasks:
                if task.state not in LIVE:
                    continue
                self._count_held(job, task, 1)
                is_stopping = task.state is TaskState.STOPPING
                after = self.settings.grace_seconds if is_stopping else seconds
                if after < math.inf:
                    kind = _Kind.GONE if is_stopping else _Kind.ENDED
                    self._push(snapshot.now + after, kind, _OfAttempt(task.key, task.attempt))
        self.day.records = list(self.records.values())
        self._reservations = snapshot.reservations
        self._push(snapshot.now, _Kind.WAKE, None)

    def _goes_on(self) -> bool:
        most = self.settings.most_cycles
        return (
            bool(self._events)
            and self._events[0][0] <= self.settings.until
            and (most is None or self.day.cycles < most)
            and (not self.settings.awaited or bool(self._awaited))
        )

    def _next_cycle(self) -> tuple[float, float]:
        """Return the next cycle's time, and up to when it takes what happens."""
        if self.settings.is_gathering:
            return self._gathered()
        now = self._on_time(self._events[0][0])
        return now, now

    def _on_time(self, at: float) -> float:
        """Return the cycle in which an event is seen: not before it, however a step is rounded."""
        step, start = self.settings.cycle_seconds, self.settings.start
        return max(at, start + math.ceil((at - start) / step) * step) if step > 0 else at

    def _gathered(self) -> tuple[float, float]:
        """Return the mean and the last of so many instants that the cycles suffice for the rest."""
        left = max((self.settings.most_cycles or math.inf) - self.day.cycles, 1)
        ends = sum(self._left[key] < math.inf for key in self._lives)
        wanted = math.ceil(ends / left)
        seen: list[tuple[float, int, int, _What]] = []
        instants: set[float] = set()
        while self._events and len(instants) < max(wanted, 1):
            event = heapq.heappop(self._events)
            seen.append(event)
            at, kind, *_ = event
            if kind != _Kind.STARTED:
                instants.add(at)
            if kind == _Kind.WAKE:
                break
        for event in seen:
            heapq.heappush(self._events, event)
        last = seen[-1][0]
        now = fmean(map(self._on_time, instants or (last,)))
        return now, max(now, last)

    def _push(self, at: float, kind: _Kind, what: _What) -> None:
        self._order += 1
        heapq.heappush(self._events, (at, kind, self._order, what))

    # -- events --

    def _take_events(self, now: float) -> None:
        touched: dict[str, float] = {}
        while self._events and self._events[0][0] <= now:
            at, kind, _, what = heapq.heappop(self._events)
            key = self._take(at, _Kind(kind), what)
            if key is not None:
                touched[key] = at
        for key, at in touched.items():
            self._settle(key, at)

    def _take(self, at: float, kind: _Kind, what: _What) -> str | None:
        """Do one event; return the job that it touched."""
        match what:
            case _OfAttempt(key, number):
                return self._take_attempt(at, kind, key, number)
            case _Due(key, delayed):
                if (life := self._lives.get(key)) is not None:
                    life.give(ActionDue(delayed))
                    self._answer(life, at)
                return key
            case str(key):
                arrival = self._arrival[key]
                self._lives[key] = Life(arrival.job, policies=arrival.policies)
                self._left[key] = arrival.seconds
                self._job_of_task.update(dict.fromkeys(self._lives[key].by_key, key))
                return key
            case None:
                return None

    def _take_attempt(self, at: float, kind: _Kind, key: str, number: int) -> str | None:
        life = self._lives.get(self._job_of_task.get(key, ""))
        if life is None or life.by_key[key].attempt != number:
            return None
        task = life.by_key[key]
        if kind is _Kind.STARTED:
            life.report(key, AttemptEvent.STARTED, now=at)
            self._note_start(life, at)
        elif task.state in LIVE:
            is_end = kind is _Kind.ENDED
            event = AttemptEvent.EXITED_ZERO if is_end else AttemptEvent.EXITED_NONZERO
            life.report(key, event, now=at)
            self._count_held(life.job, task, -1)
        self._answer(life, at)
        return life.job.key

    def _count_held(self, job: Job, task: SimulatedTask, sign: int) -> None:
        role = next(role for role in job.roles if role.name == task.role)
        for resource, amount in role.request.items():
            self._used[resource] = self._used.get(resource, 0) + sign * amount
        if task.node is not None:
            gpus = sign * role.request.get(GPU, 0)
            self._gpus_held[task.node] = self._gpus_held.get(task.node, 0) + gpus

    def _note_start(self, life: Life, at: float) -> None:
        """When the whole gang runs, its work begins: every task ends after what is left of it."""
        record = self.records[life.job.key]
        if life.view.phase is JobPhase.RUNNING and record.started_at is None:
            record.started_at = at
            self._awaited.discard(life.job.key)

    def _answer(self, life: Life, at: float) -> None:
        """Do what the lifecycle asked for: stops end after their grace, timers ring later."""
        asked, life.asked = life.asked, []
        for one in asked:
            match one:
                case Stopped(task):
                    self._count_lost(life, task.started_at, at)
                    self._push(
                        at + self.settings.grace_seconds,
                        _Kind.GONE,
                        _OfAttempt(task.key, task.attempt),
                    )
                case Delayed(action, seconds):
                    self._push(at + seconds, _Kind.DUE, _Due(life.job.key, action))

    def _count_lost(self, life: Life, started_at: float | None, at: float) -> None:
        if started_at is None:
            return
        ran = at - started_at
        every = self.settings.checkpoint_seconds
        kept = math.floor(ran / every) * every if every else 0.0
        key = life.job.key
        self.records[key].lost_task_seconds += ran - kept
        # The tasks of a gang are stopped at one instant: the longest run tells what it keeps.
        self._left[key] = min(self._left[key], max(self._arrival[key].seconds - kept, 0.0))

    def _settle(self, key: str, at: float) -> None:
        life = self._lives.get(key)
        if life is None:
            return
        if life.is_finished:
            del self._lives[key]
            self._jobs.pop(key, None)
            for task in life.tasks:
                self._job_of_task.pop(task.key, None)
            if life.view.phase in FINISHED_PHASES:
                self.records[key].ended_at = at
            return
        self._jobs[key] = life.as_engine_job()

    # -- cycles --

    def snapshot(self, now: float) -> Snapshot:
        """Return the cluster as the engine sees it now."""
        self._version += 1
        return replace(
            self._base,
            now=now,
            jobs=tuple(self._jobs.values()),
            reservations=self._reservations,
            version=self._version,
        )

    def _cycle(self, now: float) -> None:
        snapshot = self.snapshot(now)
        decided = plan(snapshot, self.config, memo=self._memo)
        if self.check is not None:
            self.check(snapshot, decided)
        self.day.cycles += 1
        had_reservations, self._reservations = self._reservations, decided.reservations
        touched = self._carry_out(decided, now)
        for key in touched:
            self._settle(key, now)
        self._sample(now, decided)
        self._wake(now, is_moving=bool(touched) or had_reservations != self._reservations)

    def _carry_out(self, decided: Plan, now: float) -> set[str]:
        touched: set[str] = set()
        for key, phase in decided.phases.items():
            if key in self._lives:
                self._lives[key].take_phase(phase, now)
                touched.add(key)
        for eviction in decided.evictions:
            life = self._lives[eviction.job]
            reason = StopReason.RECLAIMED if "reclaim" in eviction.action else StopReason.PREEMPTED
            life.report(eviction.task, AttemptEvent.STOP, now=now, reason=reason)
            self.records[eviction.job].evictions += 1
            self._answer(life, now)
            touched.add(eviction.job)
        for bind in decided.binds:
            life = self._lives[bind.job]
            task = life.bind(bind.task, bind.node, bind.devices)
            self._count_held(life.job, task, 1)
            start = now + self.settings.start_seconds
            life.report(bind.task, AttemptEvent.LAUNCHED, now=now)
            attempt = _OfAttempt(task.key, task.attempt)
            self._push(start, _Kind.STARTED, attempt)
            if self._left[bind.job] < math.inf:
                self._push(start + self._left[bind.job], _Kind.ENDED, attempt)
            touched.add(bind.job)
        return touched

    def _wake(self, now: float, *, is_moving: bool) -> None:
        """Come back when something changed just now, or when a reservation or SLA falls due."""
        step = self.settings.cycle_seconds or 1.0
        waiting = [job for job in self._jobs.values() if _waits(job)]
        if is_moving and waiting and not self.settings.is_gathering:
            self._push(now + step, _Kind.WAKE, None)
            return
        times = [r.expires_at for r in self._reservations if r.expires_at > now]
        times += [
            job.created_at + job.sla_waiting_seconds
            for job in waiting
            if job.sla_waiting_seconds is not None
        ]
        due = min((at for at in times if at > now), default=None)
        if due is not None:
            self._push(due, _Kind.WAKE, None)

    def _sample(self, now: float, decided: Plan) -> None:
        waiting: dict[str, int] = {}
        for job in self._jobs.values():
            pending = sum(task.state is EngineState.PENDING for task in job.tasks)
            if pending:
                waiting[job.queue] = waiting.get(job.queue, 0) + pending
        self.day.samples.append(
            Sample(
                now,
                {s.queue: s.allocated for s in decided.shares},
                {s.queue: s.deserved for s in decided.shares},
                waiting,
                dict(self._used),
                fragmentation(self.world.nodes, self._gpus_held),
            )
        )


def fragmentation(nodes: Sequence[Node], held: Mapping[str, int]) -> float | None:
    """Return which part of the free GPUs lies on machines that are partly taken.

    `held`: node -> GPUs in thousandths. None where no GPU is free: nothing can be split.
    """
    free = split = 0
    for node in nodes:
        size = node.allocatable.get(GPU, 0)
        left = size - held.get(node.name, 0)
        free += left
        split += left if left < size else 0
    return split / free if free else None


def _waits(job: Job) -> bool:
    return any(task.state is EngineState.PENDING for task in job.tasks)


def replay(
    world: World,
    arrivals: Iterable[Arrival],
    *,
    config: Config = DEFAULT_CONFIG,
    settings: Settings | None = None,
    check: Check | None = None,
) -> Day:
    """Play a trace on a virtual cluster and return what happened.

    Cost: one engine cycle for each instant (rounded to `cycle_seconds`) at which something changed.
    """
    return Replay(world, arrivals, config=config, settings=settings, check=check).run()


def with_limits(arrival: Arrival, factor: float) -> Arrival:
    """Return the arrival with a time limit of so many times its real run time."""
    return replace(arrival, job=replace(arrival.job, time_limit_seconds=arrival.seconds * factor))
