"""The enqueue action: which waiting jobs are let in, queue by queue."""

from __future__ import annotations

from collections.abc import Mapping

from scheduling.engine.actions.lines import Lines
from scheduling.engine.actions.serving import waiting_groups
from scheduling.engine.callbacks import Vote
from scheduling.engine.groups import Group
from scheduling.engine.reasons import ReasonCode
from scheduling.engine.session import Session
from scheduling.engine.types import GangPhase, Reason
from scheduling.engine.views import JobView


def run(session: Session, arguments: Mapping[str, str]) -> None:
    """Ask the plugins for every job in phase Pending; a refusal does not hold up the next one.

    Argument `lapseSeconds` (default 0: never): an admission that has not been used for so long
    lapses, and the job asks again behind those that ask for the first time.
    """
    lapse = float(arguments.get("lapseSeconds", "0"))
    waiting_groups(session)
    lapsed = _lapsed(session, lapse) if lapse > 0 else []
    for group in lapsed:
        for row in group.rows:
            session.phases[row.job.key] = GangPhase.PENDING
            for callback in session.each("job_lapsed"):
                callback(session.view(row.job.key))
    asking = [
        g
        for g in session.groups
        if g.first.job.phase is GangPhase.PENDING and (not g.is_out or not g.first.job.tasks)
    ]
    refused: dict[str, Reason] = {}
    _ask(session, asking, refused)
    _ask(session, lapsed, refused)
    if refused:
        for group in (*asking, *lapsed):
            _part(session, group, refused)


def _lapsed(session: Session, seconds: float) -> list[Group]:
    """Take the jobs that were let in too long ago and hold nothing out of their groups."""
    before = session.now - seconds
    found = []
    for group in list(session.groups):
        if group.is_out or group.first.job.phase is not GangPhase.INQUEUE:
            continue
        gone = [
            row
            for row in group.rows
            if row.job.admitted_at is not None
            and row.job.admitted_at <= before
            and not row.held_count
        ]
        if gone:
            found += [Group(session, [row]) for row in gone]
            group.rows = [row for row in group.rows if row not in gone]
            if not group.rows:
                session.groups.remove(group)
    session.groups.extend(found)
    return found


def _ask(session: Session, groups: list[Group], refused: dict[str, Reason]) -> None:
    """Put the jobs of some groups to the vote in order; note who was refused and why."""
    lines = Lines(session, [Group(session, [row]) for group in groups for row in group.rows])
    while (queue := lines.next_queue()) is not None:
        found = lines.next_job(queue)
        if found is None:
            continue
        job, _ = found
        if session.vote("job_enqueueable", job):
            for callback in session.each("job_enqueued"):
                callback(job)
            session.phases[job.key] = GangPhase.INQUEUE
        else:
            refused[job.key] = refusal(session, job)


def _part(session: Session, group: Group, refused: Mapping[str, Reason]) -> None:
    """Leave the admitted jobs in the group and put each refused one out, with its reason."""
    for row in group.rows:
        if row.job.key in refused:
            out = Group(session, [row], refused[row.job.key])
            out.is_out = True
            session.groups.append(out)
    group.rows = [row for row in group.rows if row.job.key not in refused]
    if not group.rows:
        session.groups.remove(group)


def refusal(session: Session, job: JobView) -> Reason:
    """Say which plugin refused, with its numbers where it gives them."""
    for plugin, callback in session.callback_owners["job_enqueueable"]:
        if callback(job) is not Vote.REJECT:
            continue
        explain = getattr(plugin, "admission_reason", None)
        reason: Reason | None = explain(job) if explain is not None else None
        return reason or Reason(
            ReasonCode.ADMISSION_REFUSED,
            {"plugin": plugin.name, "resource": "", "requested": 0, "available": 0},
        )
    return Reason(ReasonCode.NOT_CONSIDERED)
