"""Cases about schedules."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, tzinfo
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from scheduling.lifecycle import cron
from scheduling.lifecycle.schedules import (
    MANY_MISSED,
    Concurrency,
    ScheduledJob,
    ScheduleStep,
    ScheduleView,
    by_age,
    job_name,
    missed_slots,
    next_look,
    step_schedule,
)
from scheduling.lifecycle.states import JobPhase
from scheduling.spec.controller_cases.words import (
    UnsupportedCaseError,
    faults,
    read_time,
    verdict,
    write_time,
)
from scheduling.spec.problems import Problem
from scheduling.spec.schedule_rules import check_schedule

Case = Mapping[str, Any]
SLOT_ANNOTATION = "volcano.sh/cronjob-scheduled-timestamp"
_START = datetime(1970, 1, 1, tzinfo=UTC)
_ZONE_BEFORE = re.compile(r"(?:CRON_)?TZ=(\S+)\s+")


def answer(case: Case) -> dict[str, Any]:
    """Answer one question about a schedule."""
    operations = {
        "sync": _sync,
        "due": _due,
        "latest-slot": _latest_slot,
        "recheck-in": _recheck,
        "changed": _changed,
        "make-job": _make_job,
        "sort-by-age": _sort,
        "own-jobs": _own_jobs,
        "create": _create,
    }
    operation = case["when"]["operation"]
    if operation not in operations:
        raise UnsupportedCaseError(f"there is no question {operation!r}")
    return operations[operation](case["given"], case["when"])


def _view(given: Case, changes: Case | None = None) -> ScheduleView:
    stated = {**given["cronjob"], **(changes or {})}
    jobs = given.get("jobs", ())
    schedule, zone = _with_zone(stated)
    return ScheduleView(
        name=stated.get("name", ""),
        cron=cron.parse(schedule),
        created_at=read_time(stated.get("created_at")) or _START,
        zone=zone,
        concurrency=Concurrency(stated.get("concurrency") or "Allow"),
        is_suspended=bool(stated.get("suspended")),
        starting_deadline_seconds=stated.get("starting_deadline_s"),
        keep_successful=stated.get("keep_successful"),
        keep_failed=stated.get("keep_failed"),
        last_scheduled_at=read_time(given.get("last_scheduled_at")),
        active=tuple(job["name"] for job in jobs if job.get("in_active_list")),
    )


def _with_zone(stated: Case) -> tuple[str, tzinfo]:
    """Return schedule and zone; one written before the schedule, as admission refuses it, wins."""
    schedule = stated.get("schedule", "")
    before = _ZONE_BEFORE.match(schedule)
    name = before[1] if before else stated.get("time_zone")
    if not name:
        return schedule, UTC
    try:
        return _ZONE_BEFORE.sub("", schedule), ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise cron.NotAScheduleError(f"there is no time zone {name!r}") from error


def _now(when: Case) -> datetime:
    now = read_time(when["now"])
    if now is None:
        raise UnsupportedCaseError("the case states no time")
    return now


def _sync(given: Case, when: Case) -> dict[str, Any]:
    now = _now(when)
    jobs = [job for job in given.get("jobs", ()) if job["owned"] and job["listed"]]
    try:
        before = _view(given)
    except cron.NotAScheduleError:
        return _synced(given, None, now)
    step = step_schedule(
        before,
        now=now,
        jobs=[_job(job) for job in jobs],
        known=[job["name"] for job in given.get("jobs", ()) if job.get("retrievable")],
    )
    return _synced(given, _with_faults(given, before, step), now, before)


def _job(job: Case) -> ScheduledJob:
    return ScheduledJob(
        job["name"],
        JobPhase(job.get("phase") or "Pending"),
        read_time(job.get("created_at")),
        read_time(job.get("last_change_at")),
    )


def _with_faults(given: Case, before: ScheduleView, step: ScheduleStep) -> ScheduleStep | None:
    """What the world answers to what was decided; None: it failed, and is tried again."""
    del before
    fault = given.get("fault")
    retrievable = {job["name"] for job in given.get("jobs", ()) if job.get("retrievable")}
    if not step.start:
        return step
    if step.stop and (fault == "job-lookup-fails" or not retrievable.issuperset(step.stop)):
        return None
    if fault == "namespace-terminating":
        return None
    if fault == "name-taken":
        after = step.schedule
        undone = ScheduleView(
            **{
                **{name: getattr(after, name) for name in ScheduleView.__dataclass_fields__},
                "active": tuple(name for name in after.active if name != step.start),
                "last_scheduled_at": read_time(given.get("last_scheduled_at")),
            }
        )
        return ScheduleStep(undone, remove=step.remove, look_again_at=step.look_again_at)
    return step


def _synced(
    given: Case,
    step: ScheduleStep | None,
    now: datetime,
    before: ScheduleView | None = None,
) -> dict[str, Any]:
    if step is None or step.never_comes:
        active = sum(bool(job.get("in_active_list")) for job in given.get("jobs", ()))
        return {
            "error": True,
            "recheck_in_s": None,
            "status_changed": False,
            "last_scheduled_at": given.get("last_scheduled_at"),
            "last_succeeded_at": None,
            "active": active,
            "created": 0,
            "deleted": 0,
        }
    after, look = step.schedule, step.look_again_at
    return {
        "error": False,
        "recheck_in_s": None if look is None else (look - now).total_seconds(),
        "status_changed": after != before or bool(step.remove),
        "last_scheduled_at": write_time(after.last_scheduled_at),
        "last_succeeded_at": write_time(after.last_succeeded_at),
        "active": len(after.active),
        "created": int(bool(step.start)),
        "deleted": len(step.stop) + len(step.remove),
    }


def _due(given: Case, when: Case) -> dict[str, Any]:
    missed = missed_slots(_view(given), _now(when), uses_deadline=True)
    if missed is None:
        return {"error": True, "due": False, "due_at": None}
    is_due = missed.latest is not None
    return {"error": False, "due": is_due, "due_at": write_time(missed.latest)}


def _latest_slot(given: Case, when: Case) -> dict[str, Any]:
    uses_deadline = bool(when.get("use_deadline"))
    missed = missed_slots(_view(given), _now(when), uses_deadline=uses_deadline)
    if missed is None:
        return {"error": True}
    few = "many" if missed.count > MANY_MISSED else "few"
    earlier = missed.count - 1  # the latest one is due
    return {
        "error": False,
        "counted_from": write_time(missed.counted_from),
        "latest_slot": write_time(missed.latest),
        "missed": few if earlier > 0 else "none",
    }


def _recheck(given: Case, when: Case) -> dict[str, Any]:
    look, now = next_look(_view(given), _now(when)), _now(when)
    return {"recheck_in_s": None if look is None else (look - now).total_seconds()}


def _changed(given: Case, when: Case) -> dict[str, Any]:
    """A changed schedule is looked at when its next slot comes, anything else at once."""
    before, after = given["cronjob"], when["cronjob"]
    is_other = any(before.get(k) != after.get(k) for k in ("schedule", "time_zone"))
    if not is_other or not after.get("schedule"):
        return {"delay_s": 0}
    try:
        view = _view(given, {"time_zone": None, **after})
    except (cron.NotAScheduleError, KeyError, ValueError):
        return {"delay_s": 0}
    look, now = next_look(view, _now(when)), _now(when)
    return {"delay_s": 0 if look is None else (look - now).total_seconds()}


def _make_job(given: Case, when: Case) -> dict[str, Any]:
    stated, slot = given["cronjob"], read_time(when["planned_at"])
    if slot is None:
        raise UnsupportedCaseError("the case states no time")
    annotations = {**stated.get("template_annotations", {}), SLOT_ANNOTATION: write_time(slot)}
    labels = stated.get("template_labels", {})
    return {
        "job": {
            "name": job_name(stated["name"], slot),
            "labels": labels,
            "label_count": len(labels),
            "annotations": annotations,
            "annotation_count": len(annotations),
        }
    }


def _sort(given: Case, when: Case) -> dict[str, Any]:
    del when
    jobs = [_job(job) for job in given.get("jobs", ())]
    listed: list[dict[str, Any]] = []
    for job in by_age(jobs):
        time = {"created_at": write_time(job.created_at)} if job.created_at else {}
        listed.append({"name": job.name, **time})
    return {"jobs": listed}


def _own_jobs(given: Case, when: Case) -> dict[str, Any]:
    del when
    stated = given["cronjob"]
    own = [
        job
        for job in given.get("jobs", ())
        if job.get("namespace") == stated.get("namespace")
        and (job.get("owner") or {}).get("controller")
        and job["owner"].get("kind") == "CronJob"
        and job["owner"].get("uid") == stated.get("uid")
    ]
    return {"count": len(own)}


def _create(given: Case, when: Case) -> dict[str, Any]:
    del given
    problems = check_schedule(
        expression=when.get("schedule", ""),
        zone=when.get("time_zone"),
        name=when.get("name"),
        concurrency=when.get("concurrency"),
        numbers={
            name: when.get(name)
            for name in ("starting_deadline_s", "keep_successful", "keep_failed")
        },
    )
    renamed = {"invalid_choice": "not_in_list"}
    return verdict(
        faults(Problem(one.path, renamed.get(one.code, one.code), one.params) for one in problems)
    )
