"""Cases about flows of jobs and their templates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scheduling.lifecycle import flows
from scheduling.lifecycle.flows import FlowCounts, FlowPhase, FlowStep
from scheduling.lifecycle.states import FINISHED_PHASES, JobPhase
from scheduling.spec import start_order
from scheduling.spec.controller_cases.words import UnsupportedCaseError, verdict

Case = Mapping[str, Any]


def answer(case: Case) -> dict[str, Any]:
    """Answer one question about a flow."""
    operations = {
        "sync": _sync,
        "deploy": _deploy,
        "status": _status,
        "decide": _decide,
        "check-graph": _check_graph,
        "create": _create,
        "make-job": _make_job,
        "list-jobs": _list_jobs,
        "delete-jobs": _delete_jobs,
        "update-history": _update_history,
        "mark": _mark,
        "job-name": _job_name,
        "flow-of-job": _flow_of_job,
    }
    operation = case["when"]["operation"]
    if operation not in operations:
        raise UnsupportedCaseError(f"there is no question {operation!r}")
    return operations[operation](case["given"], case["when"])


def _steps(listed: Any) -> list[FlowStep]:
    """Return the steps; one that is listed twice counts with its last dependencies."""
    steps = {step["name"]: tuple(step.get("depends_on") or ()) for step in listed}
    return [FlowStep(name, depends_on) for name, depends_on in steps.items()]


def _jobs(given: Case) -> dict[str, JobPhase]:
    return {job["name"]: JobPhase(job.get("phase") or "Pending") for job in given.get("jobs", ())}


def _deploy(given: Case, when: Case) -> dict[str, Any]:
    del when
    flow, templates = given["flow"], given.get("templates", ())
    ready = flows.steps_to_start(flow["name"], _steps(flow["steps"]), _jobs(given))
    created, error = [], False
    for step in ready:
        if step.name in templates:
            created.append(flows.job_name(flow["name"], step.name))
        else:
            error = True
    return {"error": error, "created": created}


def _status(given: Case, when: Case) -> dict[str, Any]:
    del when
    jobs = _jobs(given)
    known = {one["name"]: one.get("history", []) for one in given.get("known", ())}
    status = []
    for job in given.get("jobs", ()):
        phase, start = jobs[job["name"]], job.get("created_at_s")
        has_ended = phase in FINISHED_PHASES and "duration_s" in job
        history = flows.record_phase(known.get(job["name"], []), job.get("phase", ""))
        status.append(
            {
                "name": job["name"],
                "phase": phase.value,
                "start_s": start,
                "end_s": (start or 0) + job["duration_s"] if has_ended else None,
                "restarts": job.get("retry_count", 0),
                "history": history,
            }
        )
    return {"error": False, "jobs_by_phase": flows.by_phase(jobs), "job_status": status}


def _sync(given: Case, when: Case) -> dict[str, Any]:
    if "template" in given:
        marked = [job["name"] for job in given.get("jobs", ()) if job.get("marked")]
        return {"error": False, "jobs": marked}
    flow = given["flow"]
    phase, jobs = FlowPhase(flow.get("phase") or "Pending"), _jobs(given)
    answered = _status(given, when)
    after = flows.decide(phase, steps=len(flow["steps"]), jobs=flows.count(jobs))
    is_over = phase in (FlowPhase.SUCCEEDED, FlowPhase.FAILED)
    deployed = {"error": False, "created": []} if is_over else _deploy(given, when)
    removes = phase is FlowPhase.SUCCEEDED and flow.get("keep_jobs") == "delete"
    return {
        **answered,
        **deployed,
        "phase": after.value,
        "history": {one["name"]: one["history"] for one in answered["job_status"]},
        "deleted": _own(given) if removes else [],
    }


def _own(given: Case) -> list[str]:
    """The jobs that carry the mark of the flow, or its name in front where none is marked."""
    flow = given["flow"]
    if isinstance(flow, str):
        return [job["name"] for job in given.get("jobs", ()) if job.get("flow", flow) == flow]
    own = flows.mark(flow.get("namespace", "default"), flow["name"])
    return [job["name"] for job in given.get("jobs", ()) if job.get("flow") == own]


def _decide(given: Case, when: Case) -> dict[str, Any]:
    del when
    counts = FlowCounts(**given["job_counts"])
    phase = FlowPhase(given.get("phase") or "Pending")
    return {"phase": flows.decide(phase, steps=given["steps"], jobs=counts).value}


def _check_graph(given: Case, when: Case) -> dict[str, Any]:
    del when
    edges = given["edges"]
    missing = sorted({target for targets in edges.values() for target in targets} - set(edges))
    if missing:
        return {"error": True, "acyclic": False, "keyword": "missing-step"}
    return {"error": False, "acyclic": not start_order.find_order(edges).cycle}


def _create(given: Case, when: Case) -> dict[str, Any]:
    del given
    steps = {step.name: step.depends_on for step in _steps(when["steps"])}
    missing = any(target not in steps for targets in steps.values() for target in targets)
    found = []
    if missing:
        found.append({"field": "steps", "keyword": "missing-step"})
    elif start_order.find_order(steps).cycle:
        found.append({"field": "steps", "keyword": "loop"})
    return verdict(found)


def _make_job(given: Case, when: Case) -> dict[str, Any]:
    flow = given["flow"]
    name = flow if isinstance(flow, str) else flow["name"]
    namespace = given.get("namespace") or (
        "default" if isinstance(flow, str) else flow.get("namespace", "default")
    )
    step = when.get("step") or given.get("step") or when.get("template", "")
    marks = {
        flows.CREATED_BY_TEMPLATE: flows.mark(namespace, step),
        flows.CREATED_BY_FLOW: flows.mark(namespace, name),
    }
    owner = {"kind": "JobFlow", "name": name, "controller": True}
    job = {"name": flows.job_name(name, step), "owner": owner, "labels": marks}
    return {"error": False, "job": {**job, "annotations": marks}}


def _list_jobs(given: Case, when: Case) -> dict[str, Any]:
    del when
    return {"error": False, "jobs": _own(given)}


def _delete_jobs(given: Case, when: Case) -> dict[str, Any]:
    del when
    return {"error": False, "deleted": _own(given)}


def _update_history(given: Case, when: Case) -> dict[str, Any]:
    job = when["job"]
    known = {one["name"]: one.get("history", []) for one in given.get("known", ())}
    return {"history": flows.record_phase(known.get(job["name"], []), job.get("phase", ""))}


def _mark(given: Case, when: Case) -> dict[str, Any]:
    del when
    return {"name": flows.mark(given["namespace"], given["name"])}


def _job_name(given: Case, when: Case) -> dict[str, Any]:
    del when
    return {"name": flows.job_name(given["flow"], given["step"])}


def _flow_of_job(given: Case, when: Case) -> dict[str, Any]:
    del when
    owners = [
        owner["name"]
        for owner in given.get("owners", ())
        if owner.get("kind") == "JobFlow"
        and str(owner.get("api", "flow.volcano.sh")).startswith("flow.volcano.sh")
    ]
    return {"name": owners[0] if owners else ""}
