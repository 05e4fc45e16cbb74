"""Which log of a job is shown, and its tail as far as the viewer may read it."""

from __future__ import annotations

from dataclasses import dataclass

from scheduling.domain import logs
from scheduling.domain.queries import jobs as job_queries
from scheduling.models import Attempt, Job
from tenants.domain.access import Actor, logs_verb, may

TAIL_BYTES = 64 * 1024
MOST_ATTEMPTS = 500


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
    attempts = job_queries.attempts_of(job, limit=MOST_ATTEMPTS)
    attempt = chosen_attempt(attempts, choice.attempt)
    stream = choice.stream if choice.stream in logs.STREAMS else logs.STREAMS[0]
    context: dict[str, object] = {
        "job": job,
        "may_read_logs": may_read_logs(actor, job),
        "log_attempts": attempts,
        "attempt": attempt,
        "stream": stream,
        "streams": logs.STREAMS,
        "search": choice.find,
    }
    if attempt is None or not context["may_read_logs"]:
        return context
    part = logs.read_log(attempt=attempt, stream=stream, offset=-TAIL_BYTES, length=TAIL_BYTES)
    context |= {
        "log_text": part.data.decode(errors="replace"),
        "log_start": part.offset,
        "log_end": part.offset + len(part.data),
    }
    if choice.find:
        context["matches"] = logs.search(attempt=attempt, stream=stream, text=choice.find)
    return context


def chosen_attempt(attempts: list[Attempt], wanted: str) -> Attempt | None:
    """Return the attempt that is wanted, else the first that failed, else the first."""
    for attempt in attempts:
        if str(attempt.id) == wanted:
            return attempt
    failed = [attempt for attempt in attempts if attempt.state == "Failed"]
    return next(iter(failed or attempts), None)
