"""Cases that run actions, and what was decided in their names and quantities."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from scheduling.engine.cycle import close, open_session, run_actions
from scheduling.engine.session import Session
from scheduling.engine.types import PODS, GangPhase, Plan, Snapshot, Task, TaskState
from scheduling.scenario.cases import Case, read_case, read_config
from scheduling.scenario.quantities import Data, quantity
from scheduling.scenario.stand_ins import KNOWN


def answer_session(data: Data) -> dict[str, object]:
    """Run the actions, or the cycles, of a case and say what was decided."""
    if "cycles" not in data:
        session, plan = _run(read_case(data))
        return {**decisions(session, plan, data), "nomination_cleared": cleared(data, plan)}
    placed: dict[str, str] = {}
    phases: dict[str, GangPhase] = {}
    cycles = []
    for cycle in data["cycles"]:
        case = read_case(data, groups=cycle["present_podgroups"])
        snapshot = _with_binds(case.snapshot, placed, phases)
        config = read_config(data, cycle["actions"], has_enqueue=cycle.get("enqueue_configured"))
        session, plan = _run(Case(data, snapshot, config), cycle["actions"])
        cycles.append(decisions(session, plan, data))
        placed |= {b.task: b.node for b in plan.binds}
        phases |= plan.phases
    return {"cycles": cycles}


def _with_binds(
    snapshot: Snapshot, placed: Mapping[str, str], phases: Mapping[str, GangPhase]
) -> Snapshot:
    """Return the snapshot with earlier cycles' binds in effect."""
    return replace(
        snapshot,
        jobs=tuple(
            replace(
                job,
                phase=phases.get(job.key, job.phase),
                tasks=tuple(
                    replace(t, state=TaskState.BOUND, node=placed[t.key]) if t.key in placed else t
                    for t in job.tasks
                ),
            )
            for job in snapshot.jobs
        ),
    )


def _run(case: Case, actions: Sequence[str] | None = None) -> tuple[Session, Plan]:
    """Run a case's actions, or of those that it configures some only."""
    session = open_session(case.snapshot, case.config, plugins=KNOWN)
    run_actions(session, actions)
    return session, close(session)


def decisions(session: Session, plan: Plan, data: Data) -> dict[str, object]:
    """Return a plan with names and quantities."""
    binds = {b.task: b.node for b in plan.binds}
    evicted = [e.task for e in plan.evictions]
    pipelined = {p.task: p.node for p in plan.pipelined}
    status: dict[str, str] = {}
    allocated: dict[str, dict[str, str]] = {}
    phases: dict[str, str] = {}
    for job in session.snapshot.jobs:
        phases[job.key] = str(plan.phases.get(job.key, job.phase))
        roles = {r.name: r for r in job.roles}
        held: Counter[str] = Counter()
        for task in job.tasks:
            status[task.key] = _status(task, binds, evicted, pipelined)
            if status[task.key] in ("Allocated", "Binding", "Bound", "Running"):
                held.update({PODS: 1000, **roles[task.role].request})
        allocated[job.key] = {name: quantity(name, value) for name, value in held.items()}
    return {
        "binds": binds,
        "evicted": evicted,
        "pipelined": pipelined,
        "podgroup_phase": phases,
        "allocated": allocated,
        "task_status": status
        | {
            f"{p['namespace']}/{p['name']}": "Unknown"
            for p in data["pods"]
            if p["phase"] == "Unknown"
        },
        "nomination_cleared": [],
    }


def cleared(data: Data, plan: Plan) -> list[str]:
    """Name the groups whose nominations have come true: a bind takes them away."""
    bound = {b.job for b in plan.binds}
    nominated = {
        f"{p['namespace']}/{p['podgroup']}" for p in data["pods"] if p.get("nominated_node")
    } | {f"{g['namespace']}/{g['name']}" for g in data["podgroups"] if g.get("nominated_hypernode")}
    return sorted(bound & nominated)


def _status(
    task: Task, binds: Mapping[str, str], evicted: Sequence[str], pipelined: Mapping[str, str]
) -> str:
    if task.key in binds:
        return "Binding"
    if task.key in evicted:
        return "Releasing"
    if task.key in pipelined:
        return "Pipelined"
    return str(task.state)
