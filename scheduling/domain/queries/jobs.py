"""The read side of jobs: filtered lists by keyset, counters, a job's tasks, history and metrics."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from django.db.models import Case, Max, Prefetch, Q, QuerySet, Sum, When, Window
from django.db.models.functions import RowNumber

from scheduling.domain.queries.keyset import beyond
from scheduling.domain.queries.redaction import redact_rows
from scheduling.models import (
    Attempt,
    History,
    Job,
    JobCount,
    JobFile,
    MetricSample,
    Queue,
    QueueClosure,
    Role,
    Task,
    Usage,
)
from scheduling.models.attempt import AttemptState
from scheduling.models.job import FINISHED_PHASES, JobPhase
from tenants.domain.access import Actor
from tenants.domain.errors import Invalid, NotFound, Problem
from tenants.models.scoped import Scope, known_first

PAGE_SIZE = 50
LARGEST_PAGE = 500
TASKS_PER_ROLE = 256
TASKS_PER_PAGE = 100
TASK_ORDER = ("role_id", "index")
TASK_CURSOR = re.compile(r"[0-9]{1,18}-[0-9]{1,9}", re.ASCII)
LINES = 12
SAMPLES = 4000
POINTS = 400

TABS: Mapping[str, tuple[str, ...]] = {
    "all": (),
    "waiting": (JobPhase.PENDING,),
    "running": (JobPhase.RUNNING, JobPhase.RESTARTING, JobPhase.COMPLETING),
    "suspended": (JobPhase.ABORTING, JobPhase.ABORTED),
    "completed": (JobPhase.COMPLETED,),
    "failed": (JobPhase.FAILED,),
    "cancelled": (JobPhase.TERMINATING, JobPhase.TERMINATED),
}
"""The tabs of the list: name -> phases; none means every phase."""
LIVE_TABS = frozenset({"waiting", "running", "suspended"})
"""Tabs of jobs that have not ended: few, however long the history."""


@dataclass(frozen=True, slots=True)
class JobFilter:
    """What a list is narrowed to; an empty value narrows nothing."""

    tab: str = "all"
    queue: str = ""
    """A queue's name; jobs of the queues below it are included."""
    owner: str = ""
    text: str = ""
    """Part of the job's name."""
    kind: str = ""

    @property
    def is_narrowing(self) -> bool:
        """Whether anything but the tab is given."""
        return bool(self.queue or self.owner or self.text or self.kind)


@dataclass(frozen=True, slots=True)
class JobPage:
    """One page of a list and where the next one begins; an empty cursor: there is none."""

    jobs: tuple[Job, ...]
    next_cursor: str = ""


@dataclass(frozen=True, slots=True)
class RoleTasks:
    """A role with its first tasks and how many more there are."""

    role: Role
    tasks: tuple[Task, ...]

    @property
    def more(self) -> int:
        """How many tasks are not in `tasks`."""
        return max(0, self.role.replicas - len(self.tasks))

    @property
    def last_cursor(self) -> str:
        """Where the list of all tasks goes on after these."""
        return task_cursor(self.tasks[-1]) if self.tasks else ""


@dataclass(frozen=True, slots=True)
class TaskPage:
    """One page of a job's tasks by role and index; an empty cursor: there is no more."""

    tasks: tuple[Task, ...]
    next_cursor: str = ""


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a chart: a name and points in order."""

    name: str
    points: tuple[tuple[float | datetime, float], ...]


@dataclass(slots=True)
class _Lines:
    """Series under construction, by name."""

    by_name: dict[str, list[tuple[float | datetime, float]]] = field(default_factory=dict)

    def add(self, name: str, at: float | datetime, value: object) -> None:
        if isinstance(value, int | float) and not isinstance(value, bool):
            self.by_name.setdefault(name, []).append((at, float(value)))

    def series(self) -> tuple[Series, ...]:
        names = sorted(self.by_name)[:LINES]
        return tuple(Series(name, thinned(self.by_name[name])) for name in names)


def thinned(
    points: Sequence[tuple[float | datetime, float]], most: int = POINTS
) -> tuple[tuple[float | datetime, float], ...]:
    """Keep at most about `most` points, evenly, the last one always."""
    step = max(1, len(points) // most)
    kept = list(points[::step])
    if points and kept[-1] != points[-1]:
        kept.append(points[-1])
    return tuple(kept)


def encode_cursor(job: Job) -> str:
    """Return where the page after this job begins."""
    text = f"{job.created_at.isoformat()}|{job.id}"
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_cursor(cursor: str) -> tuple[datetime, UUID]:
    """Read a cursor.

    Raises:
        Invalid: it is not one that `encode_cursor` made.
    """
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
        at, _, job_id = text.partition("|")
        return datetime.fromisoformat(at), UUID(job_id)
    except (ValueError, binascii.Error) as error:
        raise Invalid([Problem("after", "bad_cursor", {"cursor": cursor[:80]})]) from error


def visible(scope: Scope, where: JobFilter) -> QuerySet[Job]:
    """Return the jobs that `scope` may read and the filter lets through, without an order."""
    is_of_history = where.tab not in LIVE_TABS
    jobs = Job.objects
    found = jobs.visible_in_order(scope) if is_of_history else jobs.visible_to(scope)
    if phases := TABS.get(where.tab, ()):
        found = found.filter(phase__in=phases)
    if where.queue:
        links = QueueClosure.objects.filter(ancestor__name=where.queue)
        below = links.values_list("descendant_id", flat=True)
        found = found.filter(queue__in=known_first(below) if is_of_history else below)
    if where.owner:
        found = found.filter(owner__username__iexact=where.owner)
    if where.text:
        found = found.filter(_text_query(where.text))
    if where.kind:
        found = found.filter(kind=where.kind)
    return found


def _text_query(text: str) -> Q:
    try:
        return Q(id=UUID(text))
    except ValueError:
        return Q(name__icontains=text)


def list_jobs(
    scope: Scope, where: JobFilter, *, cursor: str = "", limit: int = PAGE_SIZE
) -> JobPage:
    """Return the newest jobs first: one query however many rows.

    Raises:
        Invalid: the cursor is not one of ours.
    """
    found = visible(scope, where)
    if cursor:
        at, job_id = decode_cursor(cursor)
        found = found.filter(created_at__lte=at).filter(
            Q(created_at__lt=at) | Q(created_at=at, id__lt=job_id)
        )
    limit = max(1, min(limit, LARGEST_PAGE))
    # Chosen before queue and owner are joined to them: those of a large subtree are many.
    chosen = found.order_by("-created_at", "-id").values("id")[: limit + 1]
    rows = list(
        Job.objects.filter(id__in=chosen)
        .select_related("queue", "owner")
        .defer("spec", "queue__annotations")
        .order_by("-created_at", "-id")
    )
    jobs = tuple(rows[:limit])
    redact_rows(scope, jobs, own_queues={job.queue.name for job in jobs})
    return JobPage(jobs, encode_cursor(jobs[-1]) if len(rows) > limit else "")


def count_newer(scope: Scope, where: JobFilter, *, than: str, most: int) -> int:
    """Count the jobs that came after the one a cursor names, up to `most`: one query.

    Raises:
        Invalid: the cursor is not one of ours.
    """
    found = visible(scope, where)
    if than:
        at, job_id = decode_cursor(than)
        found = found.filter(created_at__gte=at).filter(
            Q(created_at__gt=at) | Q(created_at=at, id__gt=job_id)
        )
    return len(found.order_by("-created_at", "-id").values_list("id")[:most])


def count_by_phase(scope: Scope, *, queue: str = "") -> dict[str, int]:
    """Return how many jobs are in each phase, from the maintained counters."""
    counts = JobCount.objects.visible_to(scope)
    if queue:
        below = QueueClosure.objects.filter(ancestor__name=queue)
        counts = counts.filter(queue__in=below.values("descendant_id"))
    rows = counts.values_list("phase").annotate(sum=Sum("amount")).order_by("phase")
    return {phase: int(total) for phase, total in rows}


def count_by_tab(counts: Mapping[str, int]) -> dict[str, int]:
    """Sum the counters of phases into those of the tabs."""
    return {
        tab: sum(counts.get(phase, 0) for phase in phases) if phases else sum(counts.values())
        for tab, phases in TABS.items()
    }


def load_job(scope: Scope, job_id: UUID | str) -> Job:
    """Return one job with its queue and owner.

    Raises:
        NotFound: there is none, or the scope may not read it.
    """
    try:
        wanted = UUID(str(job_id))
    except ValueError:
        raise NotFound("job") from None
    job = (
        Job.objects.visible_to(scope)
        .select_related("queue", "owner", "unit")
        .filter(id=wanted)
        .first()
    )
    if job is None:
        raise NotFound("job")
    redact_rows(scope, [job], own_queues={job.queue.name})
    return job


def tasks_by_role(scope: Scope, job: Job) -> list[RoleTasks]:
    """Return the roles in order, each with its first tasks: two queries, and for names."""
    tasks = (
        Task.objects.filter(job=job, index__lt=TASKS_PER_ROLE)
        .select_related("node")
        .order_by("role_id", "index")
    )
    roles = job.roles.order_by("position").prefetch_related(Prefetch("tasks", queryset=tasks))
    found = [RoleTasks(role, tuple(role.tasks.all())) for role in roles]
    shown = [task for one in found for task in one.tasks]
    redact_rows(scope, shown, own_queues={job.queue.name})
    return found


def task_cursor(task: Task) -> str:
    """Return where the page after this task begins."""
    return f"{task.role_id}-{task.index}"


def task_page(scope: Scope, job: Job, *, after: str = "") -> TaskPage:
    """Return tasks of all roles after the one that a cursor names: one query, and for names.

    Raises:
        Invalid: the cursor is not one of ours.
    """
    rows = Task.objects.filter(job=job)
    if after:
        role_id, _, index = after.partition("-")
        if not TASK_CURSOR.fullmatch(after):
            raise Invalid([Problem("after", "bad_cursor", {"cursor": after[:80]})])
        rows = rows.filter(
            beyond(TASK_ORDER, (int(role_id), int(index))), role_id__gte=int(role_id)
        )
    found = list(rows.select_related("role", "node").order_by(*TASK_ORDER)[: TASKS_PER_PAGE + 1])
    shown = tuple(found[:TASKS_PER_PAGE])
    redact_rows(scope, shown, own_queues={job.queue.name})
    return TaskPage(shown, task_cursor(shown[-1]) if len(found) > TASKS_PER_PAGE else "")


def task_of(scope: Scope, job: Job, role: str, index: int) -> Task:
    """Return one task of a job.

    Raises:
        NotFound: the job has no such task.
    """
    found = Task.objects.filter(job=job, role__name=role, index=index)
    task = found.select_related("role", "node").first()
    if task is None:
        raise NotFound("task")
    redact_rows(scope, [task], own_queues={job.queue.name})
    return task


def attempts_of(job: Job, *, limit: int = 200) -> list[Attempt]:
    """Return the newest attempts of a job, in order of their start."""
    newest = job.attempts.select_related("task", "task__role", "node").order_by("-bound_at")[:limit]
    return sorted(
        newest, key=lambda attempt: (attempt.task.role_id, attempt.task.index, attempt.number)
    )


@dataclass(frozen=True, slots=True)
class AttemptName:
    """An attempt as a menu names it."""

    id: UUID
    task_id: int
    role: str
    index: int
    number: int
    state: str


def attempt_names(job: Job, *, limit: int) -> list[AttemptName]:
    """Return the newest attempts of a job to choose from, by role, task and number."""
    newest = job.attempts.order_by("-bound_at").values("id")[:limit]
    rows = Attempt.objects.filter(id__in=newest).order_by("task__role_id", "task__index", "number")
    return [
        AttemptName(*row)
        for row in rows.values_list(
            "id", "task_id", "task__role__name", "task__index", "number", "state"
        )
    ]


def attempts_by_id(ids: Sequence[UUID]) -> list[Attempt]:
    """Return some attempts in the order of their ids given."""
    found = Attempt.objects.select_related("task__role", "node").in_bulk(ids)
    return [found[one] for one in ids if one in found]


def attempt_to_read(job: Job, wanted: str, *, among: int) -> Attempt | None:
    """Return the attempt of that id, else of the newest the one whose log most wants reading.

    That is the first by role and task of those that failed, else of all.
    """
    found = job.attempts.select_related("task__role", "node")
    try:
        one = found.filter(id=UUID(wanted)).first() if wanted else None
    except ValueError:
        one = None
    if one is not None:
        return one
    failed = Case(When(state=AttemptState.FAILED, then=0), default=1)
    newest = job.attempts.order_by("-bound_at").values("id")[:among]
    return (
        found.filter(id__in=newest)
        .order_by(failed, "task__role_id", "task__index", "number")
        .first()
    )


def first_failure(job: Job) -> Attempt | None:
    """Return the attempt that failed first in the job's last run, None if none did."""
    failed = job.attempts.filter(state=AttemptState.FAILED).select_related("task__role")
    return failed.order_by("-generation", "finished_at").first()


def attempts_of_task(task: Task) -> list[Attempt]:
    """Return the attempts of one task, the newest first."""
    return list(task.attempts.select_related("node").order_by("-number"))


@dataclass(frozen=True, slots=True)
class Peak:
    """The most that one attempt used; None means not measured."""

    cpu_milli: int | None
    memory_bytes: int | None
    gpu_percent: float | None


def peaks_of(attempts: Collection[Attempt]) -> dict[UUID, Peak]:
    """Return the most that each attempt used, for those that were measured: one query."""
    rows = (
        Usage.objects.filter(attempt_id__in=[attempt.id for attempt in attempts])
        .values("attempt_id")
        .annotate(cpu=Max("cpu_milli"), memory=Max("memory_bytes"), gpu=Max("gpu_percent"))
        .order_by("attempt_id")
    )
    return {row["attempt_id"]: Peak(row["cpu"], row["memory"], row["gpu"]) for row in rows}


def history_of(
    scope: Scope, job: Job, *, before: int | None = None, limit: int = 100
) -> list[History]:
    """Return rows of history, the newest first, before a sequence number."""
    rows = job.history.select_related("task__role")
    if before is not None:
        rows = rows.filter(seq__lt=before)
    found = list(rows.order_by("-seq")[:limit])
    redact_rows(scope, found, own_queues={job.queue.name})
    return found


def files_of(job: Job, purpose: str, *, limit: int = 500) -> list[JobFile]:
    """Return the files of a job by path: the newest of each path."""
    newest = JobFile.objects.filter(job=job, purpose=purpose).annotate(
        rank=Window(RowNumber(), partition_by=["path"], order_by="-created_at")
    )
    return list(newest.filter(rank=1).order_by("path")[:limit])


def metric_series(job: Job) -> tuple[Series, ...]:
    """Return the numbers that the job's tasks reported, by name, over their step (or their line).

    The newest samples of the job; a name is the metric's, with the task's index where several
    tasks report the same.
    """
    rows = list(
        MetricSample.objects.filter(job=job)
        .order_by("-id")
        .values_list("values", "line", "attempt__task__role__name", "attempt__task__index")[
            :SAMPLES
        ]
    )
    many = len({(role, index) for _, _, role, index in rows}) > 1
    lines = _Lines()
    for values, line, role, index in reversed(rows):
        step = values.get("step", line) if isinstance(values, dict) else line
        if not isinstance(step, int | float):
            step = line
        for name, value in _named(values):
            lines.add(f"{name} · {role}-{index}" if many else name, step, value)
    return lines.series()


def _named(values: object) -> Iterable[tuple[str, object]]:
    if isinstance(values, dict):
        yield from ((str(name), value) for name, value in values.items() if name not in _NO_METRIC)


_NO_METRIC = frozenset({"step", "time", "at", "timestamp", "epoch"})


def usage_series(job: Job) -> dict[str, tuple[Series, ...]]:
    """Return the measured use of the job's newest attempts: cpu, memory, gpu, each by task."""
    attempts = job.attempts.order_by("-bound_at").values("id")[:LINES]
    rows = list(
        Usage.objects.filter(attempt_id__in=list(attempts.values_list("id", flat=True)))
        .order_by("-at")
        .values_list(
            "at",
            "attempt__task__role__name",
            "attempt__task__index",
            "cpu_milli",
            "memory_bytes",
            "gpu_percent",
        )[:SAMPLES]
    )
    charts = {"cpu": _Lines(), "memory": _Lines(), "gpu": _Lines()}
    for at, role, index, cpu, memory, gpu in reversed(rows):
        name = f"{role}-{index}"
        charts["cpu"].add(name, at, cpu / 1000 if cpu is not None else None)
        charts["memory"].add(name, at, memory)
        charts["gpu"].add(name, at, gpu)
    return {name: lines.series() for name, lines in charts.items()}


@dataclass(frozen=True, slots=True)
class OwnJobs:
    """What a person looks at first: own jobs that live, and those that ended lately."""

    live: tuple[Job, ...]
    ended: tuple[Job, ...]

    @property
    def running(self) -> int:
        """How many run."""
        return sum(job.phase == JobPhase.RUNNING for job in self.live)

    @property
    def waiting(self) -> int:
        """How many wait for a place."""
        return sum(job.phase == JobPhase.PENDING for job in self.live)

    @property
    def failed(self) -> int:
        """How many failed lately."""
        return sum(job.phase == JobPhase.FAILED for job in self.ended)

    @property
    def gpu_milli(self) -> int:
        """Return what the running ones ask for."""
        return sum(job.gpu_milli for job in self.live if job.phase == JobPhase.RUNNING)


def own_jobs(actor: Actor, *, limit: int = 50) -> OwnJobs:
    """Return the actor's own jobs: the newest that live, the last that ended: two queries."""
    mine = (
        Job.objects.visible_to(actor)
        .filter(owner_id=actor.user_id)
        .select_related("queue", "owner")
        .defer("spec")
    )
    newest = ("-created_at", "-id")
    live = mine.exclude(phase__in=FINISHED_PHASES).order_by(*newest)[:limit]
    ended = mine.filter(phase__in=FINISHED_PHASES).order_by(*newest)[:10]
    found = OwnJobs(tuple(live), tuple(ended))
    rows = (*found.live, *found.ended)
    redact_rows(actor, rows, own_queues={job.queue.name for job in rows})
    return found


def queue_names(scope: Scope, *, limit: int = 200) -> list[Queue]:
    """Return the queues that a scope sees, by name, for menus."""
    return list(
        Queue.objects.visible_to(scope)
        .only("id", "name", "state", "unit_id")
        .order_by("name")[:limit]
    )
