"""Flows of jobs: which steps may start, and how a flow stands by the phases of its jobs.

Source: Volcano `pkg/controllers/jobflow`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from scheduling.lifecycle.states import JobPhase

CREATED_BY_FLOW = "volcano.sh/createdByJobFlow"
CREATED_BY_TEMPLATE = "volcano.sh/createdByJobTemplate"


class FlowPhase(StrEnum):
    """How far a flow has got, with Volcano's strings."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeed"
    FAILED = "Failed"
    TERMINATING = "Terminating"


@dataclass(frozen=True, slots=True)
class FlowStep:
    """One step: a template, and the steps whose jobs must have completed before."""

    name: str
    depends_on: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FlowCounts:
    """How many jobs of a flow are in the phases that decide about it."""

    running: int = 0
    completed: int = 0
    failed: int = 0
    terminated: int = 0


_BUCKETS: Mapping[JobPhase, str] = {
    JobPhase.PENDING: "pending",
    JobPhase.RUNNING: "running",
    JobPhase.FAILED: "failed",
    JobPhase.COMPLETED: "completed",
    JobPhase.TERMINATED: "terminated",
}


def job_name(flow: str, step: str) -> str:
    """Return the name of a step's job."""
    return f"{flow}-{step}"


def mark(namespace: str, name: str) -> str:
    """Return how a flow or template is named on what was made from it."""
    return f"{namespace}.{name}"


def steps_to_start(
    flow: str, steps: Iterable[FlowStep], jobs: Mapping[str, JobPhase]
) -> list[FlowStep]:
    """Return the steps without a job whose dependencies have all completed."""
    return [
        step
        for step in steps
        if job_name(flow, step.name) not in jobs
        and all(
            jobs.get(job_name(flow, target)) is JobPhase.COMPLETED for target in step.depends_on
        )
    ]


def by_phase(jobs: Mapping[str, JobPhase]) -> dict[str, list[str]]:
    """Return job names by what they mean for the flow; what is neither is unknown."""
    sorted_jobs: dict[str, list[str]] = {name: [] for name in (*_BUCKETS.values(), "unknown")}
    for name, phase in jobs.items():
        sorted_jobs[_BUCKETS.get(phase, "unknown")].append(name)
    return sorted_jobs


def count(jobs: Mapping[str, JobPhase]) -> FlowCounts:
    """Count the jobs of a flow."""
    sorted_jobs = by_phase(jobs)
    return FlowCounts(
        running=len(sorted_jobs["running"]),
        completed=len(sorted_jobs["completed"]),
        failed=len(sorted_jobs["failed"]),
        terminated=len(sorted_jobs["terminated"]),
    )


def decide(phase: FlowPhase, *, steps: int, jobs: FlowCounts) -> FlowPhase:
    """Return the phase of a flow by its jobs: one that failed or was terminated fails the flow."""
    if phase not in (FlowPhase.PENDING, FlowPhase.RUNNING):
        return phase
    if jobs.failed or jobs.terminated:
        return FlowPhase.FAILED
    if phase is FlowPhase.RUNNING and jobs.completed == steps:
        return FlowPhase.SUCCEEDED
    return FlowPhase.RUNNING if jobs.running or jobs.completed else phase


def record_phase(history: Sequence[str], phase: str) -> list[str]:
    """Return a job's history of phases with one more, where it is a new one."""
    is_new = phase and (not history or history[-1] != phase)
    return [*history, phase] if is_new else list(history)
