"""What reasons tell of other jobs and queues, cut down to what the reader may read.

The engine explains one job by others: the head of the line, those for whom room is kept. Amounts
are for everybody whom they delay; whose they are is not. Every read of reasons passes here, for
pages, API and live updates alike: names are put to the ids that the reader may see, the others are
taken out, and `wording` says "another job".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from scheduling.engine.explain import Fit, Ladder, Rung
from scheduling.engine.types import Reason
from scheduling.models import History, Job, PastReason, Queue, QueueClosure, Task
from tenants.models.scoped import Scope

JOB_PARAMS = frozenset({"job", "beneficiary", "evicted_for"})
"""Parameters that hold the id of one job."""
JOBS_PARAMS = frozenset({"jobs", "victims"})
"""Parameters that hold the ids of jobs; how many they are stays in `<name>_total`."""
QUEUE_PARAM = "queue"
"""The parameter that holds the name of a queue."""
ERROR_PARAM = "error"
"""The text of a fault of the scheduler, which may name anything."""

Params = Mapping[str, Any]  # Any: JSON values
Row = Job | Task | History | PastReason


def redact_rows(scope: Scope, rows: Iterable[Row], *, own_queues: Collection[str]) -> None:
    """Take out of rows at hand what their reader may not see; the tables are left alone.

    `own_queues` are the names of queues that the page shows anyway, as those of its jobs. Two
    queries at most, however many rows, and none where no reason names anybody.
    """
    rows = list(rows)
    fields = ["reason_params" if isinstance(row, Job | Task) else "params" for row in rows]
    found = [getattr(row, field) for row, field in zip(rows, fields, strict=True)]
    for row, field, params in zip(
        rows, fields, redacted(scope, found, own_queues=own_queues), strict=True
    ):
        setattr(row, field, params)


def redact_ladder(
    scope: Scope,
    ladder: Ladder,
    *,
    own_queues: Collection[str],
    beside: Sequence[Params] = (),
) -> tuple[Ladder, list[dict[str, Any]]]:
    """Return a ladder with what its reader may see: the numbers, and names only of the readable.

    With it parameters of what is shown beside it, so that names are asked for once. The facts of
    its rungs tell of the job's own queue and those above it only.
    """
    reasons = [one for one in (ladder.headline, *(r.reason for r in ladder.rungs)) if one]
    many = redacted(scope, [*(one.params for one in reasons), *beside], own_queues=own_queues)
    shown = iter([replace(one, params=params) for one, params in zip(reasons, many, strict=False)])

    def next_of(reason: Reason | None) -> Reason | None:
        return next(shown) if reason else None

    headline = next_of(ladder.headline)
    rungs: list[Rung] = [replace(rung, reason=next_of(rung.reason)) for rung in ladder.rungs]
    return replace(ladder, headline=headline, rungs=tuple(rungs)), many[len(reasons) :]


def redact_fit(scope: Scope, fit: Fit, *, own_queue: str) -> Fit:
    """Return an answer to a dry run with what its reader may see."""
    ladder, _ = redact_ladder(scope, fit.ladder, own_queues=(own_queue,))
    return replace(fit, ladder=ladder)


def redacted(
    scope: Scope, many: Sequence[Params], *, own_queues: Collection[str]
) -> list[dict[str, Any]]:
    """Return the parameters of reasons as a reader may see them, in the order given.

    1. Collect the ids of jobs and names of queues of all reasons. 2. Ask which of them the reader
    sees: one query for jobs, one for queues. 3. Put names to the jobs that are seen (`job_name`),
    None in the place of what is not.
    """
    known = _Known(
        jobs=_job_names(scope, {one for params in many for one in _jobs_in(params)}),
        queues={*own_queues, *_queue_names(scope, _queues_in(many) - {*own_queues})},
        sees_everything=scope.sees_everything,
    )
    return [known.shown(params) for params in many]


@dataclass(frozen=True, slots=True)
class _Known:
    """What the reader may be told: names of jobs by id, names of queues."""

    jobs: Mapping[str, str]
    queues: Collection[str]
    sees_everything: bool

    def shown(self, params: Params) -> dict[str, Any]:
        """Return one reason's parameters."""
        shown = dict(params)
        for name in JOB_PARAMS & params.keys():
            key = str(params[name])
            shown[name] = key if key in self.jobs else None
            if key in self.jobs:
                shown[f"{name}_name"] = self.jobs[key]
        for name in JOBS_PARAMS & params.keys():
            if not isinstance(params[name], (list, tuple)):
                continue  # only their number
            keys = [str(one) for one in params[name]]
            shown[name] = [key for key in keys if key in self.jobs]
            shown[f"{name}_total"] = params.get(f"{name}_total", len(keys))
        if QUEUE_PARAM in params and params[QUEUE_PARAM] not in self.queues:
            shown[QUEUE_PARAM] = None
        if ERROR_PARAM in params:
            shown[ERROR_PARAM] = _fault(str(params[ERROR_PARAM]), is_whole=self.sees_everything)
        return shown


def _fault(text: str, *, is_whole: bool) -> str:
    """Return a fault of the scheduler in full, or only its kind: its text may name anything."""
    return text if is_whole else text.partition(":")[0]


def _jobs_in(params: Params) -> Iterable[str]:
    for name in JOB_PARAMS & params.keys():
        yield str(params[name])
    for name in JOBS_PARAMS & params.keys():
        if isinstance(params[name], (list, tuple)):
            yield from (str(one) for one in params[name])


def _queues_in(many: Sequence[Params]) -> set[str]:
    return {str(one[QUEUE_PARAM]) for one in many if one.get(QUEUE_PARAM)}


def _job_names(scope: Scope, keys: Collection[str]) -> dict[str, str]:
    ids = {job_id for key in keys if (job_id := _uuid(key)) is not None}
    if not ids:
        return {}
    rows = Job.objects.visible_to(scope).filter(id__in=ids).values_list("id", "name")
    return {str(job_id): name for job_id, name in rows}


def _queue_names(scope: Scope, names: Collection[str]) -> set[str]:
    """Return those that are seen: the reader's own, and by name only those above them."""
    if not names:
        return set()
    seen = Queue.objects.visible_to(scope).values("id")
    links = QueueClosure.objects.filter(ancestor__name__in=names, descendant__in=seen)
    return set(links.values_list("ancestor__name", flat=True).distinct())


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
