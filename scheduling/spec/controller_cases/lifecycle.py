"""Cases about policies, phases of jobs, removal of finished jobs and states of queues."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from scheduling.lifecycle import clean_up, decisions, policies
from scheduling.lifecycle.events import LifecycleAction, PolicyEvent
from scheduling.lifecycle.queue_states import QueueView, next_state, step_queue
from scheduling.lifecycle.states import FINISHED_PHASES, JobPhase, QueueState
from scheduling.lifecycle.step import Cause, act
from scheduling.lifecycle.table import JOB_TABLE, Decision, QueueAction, Stop
from scheduling.lifecycle.values import (
    WHOLE_JOB,
    JobView,
    Policy,
    RoleView,
    Scope,
    ScopeKind,
    StopTasks,
    TaskChange,
    TaskCounts,
    TaskReported,
)
from scheduling.spec.controller_cases.words import pod_index, read_time, write_time

Case = Mapping[str, Any]
_REST = ""
"""A role without replicas that holds the counts which a case does not give by role."""


# --- policies -----------------------------------------------------------------------------------


def answer_policy(case: Case) -> dict[str, Any]:
    """Say which action answers a signal, which event a change raises, whether a role is through."""
    given, when = case["given"], case["when"]
    job = _policy_job(given["job"])
    if when.get("query") == "task-completed":
        succeeded = sum(
            pod["task"] == when["task"] and pod["phase"] == "Succeeded"
            for pod in given.get("pods", ())
        )
        role = job.role(when["task"])
        counted = role and replace(role, counts=TaskCounts(succeeded=succeeded))
        return {"completed": counted is not None and policies.is_role_completed(counted)}
    if "pod_change" in when:
        return _raised(job, when)
    return _answered(given["job"], job, when["signal"])


def _policy_job(job: Mapping[str, Any]) -> JobView:
    return JobView(
        phase=JobPhase.RUNNING,
        roles=tuple(
            RoleView(
                task["name"],
                task["replicas"],
                max_retry=task.get("max_retry", 3),
                policies=_policies(task.get("policies", ())),
            )
            for task in job.get("tasks", ())
        ),
        min_available=0,
        policies=_policies(job.get("policies", ())),
        generation=job.get("version", 0),
        exit_code_first=False,
    )


def _policies(listed: Any) -> tuple[Policy, ...]:
    return tuple(
        Policy(
            LifecycleAction(one["action"]),
            tuple(PolicyEvent(event) for event in one.get("events", ())),
            one.get("exit_code"),
            one.get("timeout_s"),
        )
        for one in listed
    )


def _answered(given: Mapping[str, Any], job: JobView, signal: Mapping[str, Any]) -> dict[str, Any]:
    if signal.get("command"):
        return {"action": signal["command"], "delay_s": 0}
    is_foreign = signal.get("job_uid") not in (None, given.get("uid"))
    if is_foreign:
        return {"action": LifecycleAction.SYNC_JOB.value, "delay_s": 0}
    answer = policies.resolve(
        job=job,
        event=PolicyEvent(signal["event"]) if signal.get("event") else None,
        role=signal.get("task", ""),
        exit_code=signal.get("exit_code", 0),
        generation=signal.get("job_version"),
    )
    return {"action": answer.action.value, "delay_s": answer.delay_seconds}


_CHANGES = {
    "Pending": TaskChange.PENDING,
    "Running": TaskChange.RUNNING,
    "Succeeded": TaskChange.SUCCEEDED,
    "Failed": TaskChange.FAILED,
}


def _raised(job: JobView, when: Mapping[str, Any]) -> dict[str, Any]:
    change, pods = when["pod_change"], when.get("pods", ())
    role = job.role(change["task"])
    if role is not None:
        own = [pod for pod in pods if pod["task"] == role.name]
        succeeded = sum(pod["phase"] == "Succeeded" for pod in own)
        role = replace(
            role,
            counts=TaskCounts(succeeded=succeeded),
            in_place_restarts=sum(pod.get("restarts", 0) for pod in own),
        )
    kind = _change(change, role, pods)
    exit_code = change.get("exit_code") or 0
    event = policies.raised_event(
        report=TaskReported(kind, change["task"], 0, 0, exit_code), role=role
    )
    return {"event": event.value, **({"exit_code": exit_code} if exit_code else {})}


def _change(change: Mapping[str, Any], role: RoleView | None, pods: Any) -> TaskChange:
    if change.get("marked_out_of_sync"):
        return TaskChange.STOPPED
    if change["kind"] == "added":
        return TaskChange.PENDING
    if change["kind"] == "deleted":
        names = {pod["name"] for pod in pods}
        index = pod_index(change["pod"])
        is_wanted = role is not None and index is not None and index < role.replicas
        is_known = change["pod"] in names if names else is_wanted
        return TaskChange.EVICTED if is_known else TaskChange.STOPPED
    if change.get("from") == change.get("to"):
        return TaskChange.RESTARTED_IN_PLACE
    return _CHANGES.get(change.get("to", ""), TaskChange.STOPPED)


# --- phases of jobs -----------------------------------------------------------------------------


def answer_state(case: Case) -> dict[str, Any]:
    """Do one action in one phase: where does it lead, and whom does it stop."""
    given, when = case["given"], case["when"]
    pods = given.get("pods", ())
    action = _action(when["action"])
    phase = JobPhase(given["job"].get("phase") or "Pending")
    row = JOB_TABLE[phase][action]
    counts = _counts_of_pods(pods) if row.stop is not Stop.NONE else _counts(given["counts"])
    job = _state_job(given, phase, counts)
    scope = _scope(when.get("target"))
    after, effects = act(job, action, Cause(scope=scope))
    killed = [
        pod
        for effect in effects
        if isinstance(effect, StopTasks)
        for pod in pods
        if not pod.get("terminating")
        and effect.scope.covers(_scope_of(pod))
        and (effect.reset or pod["phase"] not in ("Succeeded", "Failed"))
    ]
    if isinstance(row.then, Decision) and scope.kind is not ScopeKind.JOB:
        # Of a part of a job only the caller knows the counts: decide again with those stopped.
        stopping = sum(bool(pod.get("terminating")) for pod in pods) + len(killed)
        stopped = _state_job(given, phase, TaskCounts(stopping=stopping))
        after = replace(after, phase=decisions.decide(row.then, stopped, stopped.counts))
    is_whole = row.stop in (Stop.ALL, Stop.LIVE)
    answer = {
        "phase": after.phase.value,
        "retry_count": after.restarts,
        "version": given["job"].get("version", 0) + is_whole,
    }
    if row.stop is not Stop.NONE:
        gone = {pod["name"] for pod in killed}
        leaving = {pod["name"] for pod in pods if pod.get("terminating")}
        answer["killed"] = sorted(gone)
        answer["kept"] = [p["name"] for p in pods if p["name"] not in gone | leaving]
        answer["already_leaving"] = sorted(leaving)
    return answer


def _action(name: str) -> LifecycleAction:
    try:
        return LifecycleAction(name)
    except ValueError:
        return LifecycleAction.SYNC_JOB


def _counts(counts: Mapping[str, int]) -> TaskCounts:
    return TaskCounts(
        pending=counts.get("pending", 0),
        running=counts.get("running", 0),
        stopping=counts.get("terminating", 0),
        succeeded=counts.get("succeeded", 0),
        failed=counts.get("failed", 0),
    )


def _counts_of_pods(pods: Any) -> TaskCounts:
    """A pending pod exists on a machine already: it is what we call launching."""
    phases = Counter("stopping" if pod.get("terminating") else pod["phase"] for pod in pods)
    return TaskCounts(
        launching=phases["Pending"],
        running=phases["Running"],
        stopping=phases["stopping"],
        succeeded=phases["Succeeded"],
        failed=phases["Failed"],
    )


def _state_job(given: Mapping[str, Any], phase: JobPhase, counts: TaskCounts) -> JobView:
    job, by_role = given["job"], given.get("task_succeeded", {})
    roles = [
        RoleView(
            task["name"],
            task["replicas"],
            task.get("min_available"),
            counts=TaskCounts(succeeded=by_role.get(task["name"], 0)),
        )
        for task in job.get("tasks", ())
    ]
    rest = replace(counts, succeeded=counts.succeeded - sum(by_role.values()))
    is_restarting = phase is JobPhase.RESTARTING
    stated = given.get("status_min_available") if is_restarting else None
    return JobView(
        phase=phase,
        roles=(*roles, RoleView(_REST, 0, counts=rest)),
        min_available=job["min_available"] if stated is None else stated,
        min_success=job.get("min_success"),
        max_retry=job["max_retry"],
        policy_restarts=job.get("retry_count", 0),
    )


def _scope(target: Mapping[str, Any] | None) -> Scope:
    if not target:
        return WHOLE_JOB
    if target["scope"] == "task":
        return Scope(ScopeKind.ROLE, target["task"])
    if target["scope"] == "partition":
        partition = int(target["partition"])
        return Scope(ScopeKind.PARTITION, target["task"], partition=partition)
    return Scope(ScopeKind.TASK, target.get("task", ""), pod_index(target["pod"]))


def _scope_of(pod: Mapping[str, Any]) -> Scope:
    partition = pod.get("partition")
    return Scope(
        ScopeKind.TASK,
        pod.get("task", ""),
        pod_index(pod["name"]),
        None if partition is None else int(partition),
    )


# --- removal ------------------------------------------------------------------------------------


def answer_clean_up(case: Case) -> dict[str, Any]:
    """Say whether and when a finished job is removed."""
    job, operation = case["given"]["job"], case["when"]["operation"]
    phase = JobPhase(job["phase"] or "Pending")
    is_finished = phase in FINISHED_PHASES
    if operation == "is-finished":
        return {"finished": is_finished}
    if operation == "needs-cleanup":
        return {"needs_cleanup": is_finished and job.get("ttl_s") is not None}
    if operation in ("finish-time", "expiry"):
        return _finish_time(job)
    if operation == "time-left":
        return _time_left(case, phase)
    return _checked(case, phase)


def _finish_time(job: Mapping[str, Any]) -> dict[str, Any]:
    finished_at = read_time(job.get("finished_at"))
    if finished_at is None:
        return {"error": True, "keyword": "no-finish-time"}
    expires_at = finished_at + timedelta(seconds=job.get("ttl_s") or 0)
    return {
        "error": False,
        "finished_at": write_time(finished_at),
        "expires_at": write_time(expires_at),
    }


def _time_left(case: Case, phase: JobPhase) -> dict[str, Any]:
    job, now = case["given"]["job"], read_time(case["when"].get("now"))
    ttl = job.get("ttl_s")
    if phase not in FINISHED_PHASES or ttl is None:
        return {"error": True, "keyword": "not-for-cleanup"}
    expires = clean_up.expires_at(
        phase=phase,
        finished_at=read_time(job.get("finished_at")),
        ttl_seconds=ttl,
        keep_seconds={},
    )
    if expires is None or now is None:
        return {"error": True, "keyword": "no-finish-time"}
    return {"error": False, "left_s": (expires - now).total_seconds()}


def _checked(case: Case, phase: JobPhase) -> dict[str, Any]:
    job = case["given"]["job"]
    now = read_time(case["when"]["now"])
    if now is None:
        return {"expired": False}
    result = clean_up.check(
        phase=phase,
        finished_at=read_time(job.get("finished_at")),
        ttl_seconds=job.get("ttl_s"),
        now=now,
        is_being_removed=bool(job.get("deleting")),
        keep_seconds={},
    )
    answer: dict[str, Any] = {"expired": result.is_due}
    if result.look_again_at is not None:
        answer["recheck_in_s"] = (result.look_again_at - now).total_seconds()
    return answer


# --- queues -------------------------------------------------------------------------------------


def answer_queue_state(case: Case) -> dict[str, Any]:
    """Open, close or synchronise a queue, alone or in a tree."""
    given, when = case["given"], case["when"]
    action = QueueAction(when["action"])
    if "queues" not in given:
        stored = given["queue"].get("state", "")
        state = stored if action is QueueAction.SYNC else given["handled_as"]
        after = next_state(_queue_state(state), action, gangs=given.get("gangs", 0))
        return {"state": after.value}
    views = {queue["name"]: _queue_view(queue) for queue in given["queues"]}
    parents = {queue["name"]: queue.get("parent") for queue in given["queues"]}
    name = when["queue"]
    done = step_queue(
        queue=views[name],
        action=action,
        parent=views.get(parents[name] or ""),
        children=[view for other, view in views.items() if parents[other] == name],
        by_parent=bool(when.get("mark_closed_by_parent")),
    )
    answer: dict[str, Any] = {
        "state": done.queue.state.value,
        "closed_by_parent": done.queue.closed_by_parent,
        "follow_up": [
            {
                "queue": follow.queue,
                "action": follow.action.value,
                "mark_closed_by_parent": follow.marks_closed_by_parent,
            }
            for follow in done.follow_ups
        ],
    }
    if done.refusal:
        answer["error"] = done.refusal
    return answer


def _queue_state(text: str) -> QueueState:
    if not text:
        return QueueState.OPEN
    return QueueState(text) if text in set(QueueState) else QueueState.UNKNOWN


def _queue_view(queue: Mapping[str, Any]) -> QueueView:
    return QueueView(
        queue["name"],
        _queue_state(queue.get("state", "")),
        queue.get("gangs", 0),
        bool(queue.get("closed_by_parent")),
        is_root=queue["name"] == "root",
    )
