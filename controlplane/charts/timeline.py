"""A job's attempts as bars over time, one row a task, below why the job waited."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from controlplane.charts.chart import Chart, PlotlyJson
from controlplane.charts.states import TOKENS, attempt_token
from scheduling.domain.queries.waits import Wait
from scheduling.domain.wording import sentence
from scheduling.models import Attempt, Job

ROW_PIXELS = 22
LEAST_PIXELS = 140
MOST_PIXELS = 900


def chart(job: Job, attempts: Sequence[Attempt], waits: Sequence[Wait], now: datetime) -> Chart:
    """Draw each attempt from its bind to its end (or now), coloured by its state.

    `waits`: the reasons of the past, newest first, as the reader may see them.
    """
    tasks = list(dict.fromkeys(_task(attempt) for attempt in attempts))
    data = [
        trace
        for token in TOKENS
        if (
            trace := _bars(
                token, [one for one in attempts if attempt_token(one.state) == token], now
            )
        )
    ]
    if attempts and job.created_at < attempts[0].bound_at:
        data.insert(0, _waiting(job, attempts, tasks))
    if waits:
        data.insert(0, _reasons(waits, now))
    rows = len(tasks) + bool(waits)
    height = min(MOST_PIXELS, max(LEAST_PIXELS, 70 + ROW_PIXELS * rows))
    return Chart(
        title=_("Timeline"),
        summary=_summary(tasks, attempts),
        data=data,
        layout={
            "barmode": "overlay",
            "height": height,
            "bargap": 0.35,
            "xaxis": {"type": "date"},
            "yaxis": {"autorange": "reversed", "type": "category", "automargin": True},
            "showlegend": True,
        },
    )


def _task(attempt: Attempt) -> str:
    return f"{attempt.task.role.name}-{attempt.task.index}"


def _bars(token: str, attempts: Sequence[Attempt], now: datetime) -> PlotlyJson | None:
    if not attempts:
        return None
    ends = [attempt.finished_at or now for attempt in attempts]
    return {
        "type": "bar",
        "orientation": "h",
        "name": str(attempts[0].state),
        "y": [_task(attempt) for attempt in attempts],
        "base": [attempt.bound_at.isoformat() for attempt in attempts],
        "x": [
            max(1.0, (end - attempt.bound_at).total_seconds() * 1000)
            for attempt, end in zip(attempts, ends, strict=True)
        ],
        "marker": {"color": f"token:state-{token}"},
        "text": [
            _("attempt %(number)d on %(node)s")
            % {"number": attempt.number, "node": attempt.node.name}
            for attempt in attempts
        ],
        "textposition": "none",
        "hovertemplate": "%{y}: %{text}<br>%{base|%H:%M:%S}<extra>%{fullData.name}</extra>",
    }


def _reasons(waits: Sequence[Wait], now: datetime) -> PlotlyJson:
    """Draw one bar for each reason in a row of the whole job."""
    return {
        "type": "bar",
        "orientation": "h",
        "name": _("reason to wait"),
        "y": [_("whole job")] * len(waits),
        "base": [wait.since.isoformat() for wait in waits],
        "x": [
            max(1.0, ((wait.until or now) - wait.since).total_seconds() * 1000) for wait in waits
        ],
        "marker": {"color": "token:state-pending", "line": {"color": "token:surface", "width": 1}},
        "text": [sentence(wait.code, wait.params) for wait in waits],
        "textposition": "none",
        "hovertemplate": "%{text}<br>%{base|%H:%M:%S}<extra>%{fullData.name}</extra>",
    }


def _waiting(job: Job, attempts: Sequence[Attempt], tasks: Sequence[str]) -> PlotlyJson:
    first: dict[str, datetime] = {}
    for attempt in attempts:
        name = _task(attempt)
        first[name] = min(first.get(name, attempt.bound_at), attempt.bound_at)
    return {
        "type": "bar",
        "orientation": "h",
        "name": _("waiting"),
        "y": list(tasks),
        "base": [job.created_at.isoformat()] * len(tasks),
        "x": [(first[task] - job.created_at).total_seconds() * 1000 for task in tasks],
        "marker": {"color": "token:data-0", "line": {"color": "token:state-queued", "width": 1}},
        "hovertemplate": "%{y}<extra>%{fullData.name}</extra>",
    }


def _summary(tasks: Sequence[str], attempts: Sequence[Attempt]) -> str:
    if not attempts:
        return _("No task has started yet.")
    repeated = len(attempts) - len(tasks)
    words = ngettext("%(n)d task", "%(n)d tasks", len(tasks)) % {"n": len(tasks)}
    again = ngettext("%(n)d attempt", "%(n)d attempts", len(attempts)) % {"n": len(attempts)}
    if repeated > 0:
        return _("%(tasks)s, %(attempts)s: %(again)d were tried again.") % {
            "tasks": words,
            "attempts": again,
            "again": repeated,
        }
    return _("%(tasks)s, one attempt each.") % {"tasks": words}
