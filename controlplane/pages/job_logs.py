"""Which log of a job is shown, and its tail as far as the viewer may read it."""

from __future__ import annotations

from dataclasses import dataclass

from scheduling.domain import logs
from scheduling.domain.queries import jobs as job_queries
from scheduling.domain.wording import sentence
from scheduling.models import Attempt, Job
from scheduling.models.attempt import AttemptState
from tenants.domain.access import Actor, logs_verb, may
from tenants.domain.errors import Gone

TAIL_BYTES = 64 * 1024
MOST_ATTEMPTS = 500
MERGED_TASKS = 32
"""How many tasks' output stands in one view; the page follows each of them."""
MERGED_BYTES = 8 * 1024
MERGED_LINES = 60
MERGED_HITS = 200
ALL = "all"
"""Instead of an attempt: the newest attempt of each task, in one view."""


@dataclass(frozen=True, slots=True)
class MergedPart:
    """One task's part of the view of all: its last lines, and where its feed goes on."""

    name: str
    attempt: Attempt
    lines: tuple[str, ...]
    end: int
    is_cut: bool
    """Whether lines before these are not shown."""
    is_lost: bool = False
    """Whether the store has lost the output."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What the address asks for; empty: what most wants reading."""

    attempt: str = ""
    stream: str = ""
    find: str = ""


def may_read_logs(actor: Actor, job: Job) -> bool:
    """Tell whether the actor may read the job's logs and files, by the setting of its queue."""
    verb = logs_verb(are_logs_shared=job.queue.are_logs_shared)
    return may(actor, verb, job.unit_id, owner_id=job.owner_id)


def log_context(actor: Actor, job: Job, choice: Choice) -> dict[str, object]:
    """Return the attempts to choose from, the chosen one and the tail of its log."""
    names = job_queries.attempt_names(job, limit=MOST_ATTEMPTS)
    return {"log_attempts": names, **log_tail(actor, job, choice)}


def log_tail(actor: Actor, job: Job, choice: Choice) -> dict[str, object]:
    """Return the chosen attempt, or the one that most wants reading, and the tail of its log."""
    attempt = chosen_attempt(job, choice.attempt)
    stream = choice.stream if choice.stream in logs.STREAMS else _telling_stream(attempt)
    context: dict[str, object] = {
        "job": job,
        "may_read_logs": may_read_logs(actor, job),
        "attempt": attempt,
        "stream": stream,
        "streams": logs.STREAMS,
        "search": choice.find,
    }
    if attempt is None or not context["may_read_logs"]:
        return context
    try:
        part = logs.read_log(attempt=attempt, stream=stream, offset=-TAIL_BYTES, length=TAIL_BYTES)
        if choice.find:
            context["matches"] = logs.search(attempt=attempt, stream=stream, text=choice.find)
    except Gone as error:
        return context | {"lost": sentence(error.code, error.params)}
    return context | {
        "log_text": part.data.decode(errors="replace"),
        "log_start": part.offset,
        "log_end": part.offset + len(part.data),
    }


def _telling_stream(attempt: Attempt | None) -> str:
    """Return stderr of what failed, if it wrote there: the cause stands in it; else stdout."""
    stdout, stderr = logs.STREAMS
    if attempt is None or attempt.state != AttemptState.FAILED:
        return stdout
    return stderr if logs.stream_size(attempt, stderr) else stdout


def merged_context(actor: Actor, job: Job, choice: Choice) -> dict[str, object]:
    """Return the last lines of the newest attempt of each task, or those that hold a text."""
    names = job_queries.attempt_names(job, limit=MOST_ATTEMPTS)
    newest = {one.task_id: one.id for one in names}  # in order of their numbers
    shown = job_queries.attempts_by_id(list(newest.values())[:MERGED_TASKS])
    stream = choice.stream if choice.stream in logs.STREAMS else logs.STREAMS[0]
    context: dict[str, object] = {
        "job": job,
        "may_read_logs": may_read_logs(actor, job),
        "log_attempts": names,
        "is_merged": True,
        "attempt": shown[0] if shown else None,
        "stream": stream,
        "streams": logs.STREAMS,
        "search": choice.find,
        "merged_more": max(0, len(newest) - MERGED_TASKS),
        "merged_limit": MERGED_TASKS,
    }
    if not context["may_read_logs"]:
        return context
    tails = logs.tails(attempts=shown, stream=stream, length=MERGED_BYTES)
    context["parts"] = [_merged_part(one, tails.get(one.id)) for one in shown]
    if choice.find:
        try:
            context["matches"] = _merged_matches(shown, stream, choice.find)
        except Gone as error:
            context["lost"] = sentence(error.code, error.params)
    return context


def task_name(attempt: Attempt) -> str:
    """Return the name of an attempt's task within its job."""
    return f"{attempt.task.role.name}-{attempt.task.index}"


def _merged_part(attempt: Attempt, tail: logs.LogPart | None) -> MergedPart:
    if tail is None:
        return MergedPart(task_name(attempt), attempt, (), 0, is_cut=False)
    if tail.is_lost:
        return MergedPart(task_name(attempt), attempt, (), tail.size, is_cut=False, is_lost=True)
    lines = tail.data.decode(errors="replace").splitlines()
    if tail.offset and len(lines) > 1:
        lines = lines[1:]  # the first may be a part of a line
    is_cut = tail.offset > 0 or len(lines) > MERGED_LINES
    end = tail.offset + len(tail.data)
    return MergedPart(task_name(attempt), attempt, tuple(lines[-MERGED_LINES:]), end, is_cut)


def _merged_matches(
    attempts: list[Attempt], stream: str, text: str
) -> list[tuple[str, logs.LogHit]]:
    """Return (task, line) of the first lines with the text, task by task."""
    found: list[tuple[str, logs.LogHit]] = []
    for attempt in attempts:
        left = MERGED_HITS - len(found)
        if left <= 0:
            break
        hits = logs.search(attempt=attempt, stream=stream, text=text, limit=left)
        found += [(task_name(attempt), hit) for hit in hits]
    return found


def chosen_attempt(job: Job, wanted: str) -> Attempt | None:
    """Return the attempt that is wanted, else the first that failed, else the first."""
    return job_queries.attempt_to_read(job, wanted, among=MOST_ATTEMPTS)
