"""Cases that ask the plugins a question without running an action."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import isinf

from scheduling.engine.actions import gang_evicting
from scheduling.engine.actions.backfill import best_effort_order
from scheduling.engine.actions.serving import roles_in_order
from scheduling.engine.actions.shuffle import withdrawn
from scheduling.engine.cycle import open_session
from scheduling.engine.domains import Domains
from scheduling.engine.journal import Claim, Removed, Unit
from scheduling.engine.session import Session
from scheduling.engine.shapes import Bools
from scheduling.engine.types import Task
from scheduling.engine.views import JobView, RoleView
from scheduling.scenario.cases import read_case
from scheduling.scenario.quantities import Data, UnsupportedCaseError
from scheduling.scenario.stand_ins import KNOWN


def answer_query(data: Data) -> dict[str, object]:
    """Ask the plugins what a case asks."""
    case = read_case(data)
    query = data["query"]
    asks = [query["ask"]] if isinstance(query["ask"], str) else query["ask"]
    result: dict[str, object] = {}
    for ask in asks:
        if ask not in QUERIES:
            raise UnsupportedCaseError(f"question {ask}")
        session = open_session(case.snapshot, case.config, plugins=KNOWN)
        result["victims" if ask == "gang_victims" else ask] = QUERIES[ask](session, query)
    return result


def _views(session: Session) -> dict[str, tuple[JobView, RoleView, Task]]:
    """Return each task with its views."""
    found = {}
    for job in session.snapshot.jobs:
        view = session.view(job.key)
        if view is None:
            continue
        roles = {r.name: r for r in view.roles}
        for task in job.tasks:
            found[task.key] = (view, roles[task.role], task)
    return found


def _asked(session: Session, query: Data) -> Iterator[tuple[str, JobView, RoleView]]:
    views = _views(session)
    names = query.get("pods") or list(views)
    for name in names:
        if name in views:
            job, role, _ = views[name]
            yield name, job, role


def _nowhere(session: Session, query: Data) -> list[str]:
    """Name the pods asked about that may run nowhere: those whose queue does not exist."""
    views = _views(session)
    known = [task.key for job in session.snapshot.jobs for task in job.tasks]
    return [name for name in query.get("pods") or known if name not in views]


def node_scores(session: Session, query: Data) -> dict[str, dict[str, float]]:
    """Sum the node scores of all plugins."""
    names = session.tables.nodes.names
    chosen = query.get("nodes")
    shown = [] if chosen == "feasible" else [n for n in names if not chosen or n in chosen]
    result = {pod: dict.fromkeys(shown, 0.0) for pod in _nowhere(session, query)}
    for pod, job, role in _asked(session, query):
        extra = session.task_scores(job, role)
        total = (
            [0.0] * len(names)
            if extra is None
            else [max(float(s), 0.0) if isinf(s) else float(s) for s in extra]
        )
        for callback in session.each("node_order"):
            total = [
                t + float(s) for t, s in zip(total, callback(role.shape, slice(None)), strict=True)
            ]
        mask = session.mask(role.shape)
        result[pod] = {
            name: total[i]
            for i, name in enumerate(names)
            if (mask[i] if chosen == "feasible" else name in shown)
        }
    return result


def node_status(session: Session, query: Data) -> dict[str, dict[str, str]]:
    """Say whether each node passes the filters."""
    names = session.tables.nodes.names
    answers = {pod: dict.fromkeys(names, "unresolvable") for pod in _nowhere(session, query)}
    for pod, job, role in _asked(session, query):
        passes = _passes(session, job, role)
        answers[pod] = {
            name: "ok" if ok else "unresolvable" for name, ok in zip(names, passes, strict=True)
        }
    return answers


def _passes(session: Session, job: JobView, role: RoleView) -> Bools:
    """Return bool[N]: nodes that pass all filters, room not considered."""
    passes = session.mask(role.shape)
    for callback in session.each("node_room"):
        passes &= callback(role.shape, slice(None))
    for callback in session.each("task_predicate"):
        allowed: Bools | None = callback(job, role)
        if allowed is not None:
            passes &= allowed
    return passes


def steps(session: Session, query: Data) -> list[bool]:
    """Check and place, one after the other."""
    views = _views(session)
    answers = []
    for step in query["steps"]:
        node = session.tables.nodes.index.get(step["node"], -1)
        if step["pod"] not in views or node < 0:
            answers.append(False)
            continue
        job, role, _ = views[step["pod"]]
        fits = bool(_passes(session, job, role)[node])
        is_check = step["op"] == "check"
        answers.append(fits if is_check else bool(role.pending) and session.place(job, role, node))
    return answers


def feasible_nodes(session: Session, query: Data) -> dict[str, list[str]]:
    """Name the nodes that pass the filters."""
    return {
        pod: [name for name, state in states.items() if state == "ok"]
        for pod, states in node_status(session, query).items()
    }


def hypernode_scores(session: Session, query: Data) -> dict[str, float]:
    """Score the domains for a sub-group."""
    wanted = query["sub_group"]
    job = session.view(wanted["podgroup"])
    found: dict[str, float] = {}
    for part in job.parts if job is not None else ():
        if (part.policy.name if part.policy else "") != wanted.get("policy", ""):
            continue
        if list(part.values) != list(wanted.get("label_values", [])):
            continue
        domains = Domains(session.snapshot.hypernodes, session.tables.nodes.index).all
        for callback in session.each("hyper_node_order"):
            for domain, score in zip(domains, callback(part.roles, domains), strict=True):
                found[domain.name] = found.get(domain.name, 0.0) + score
    return found


def job_order(session: Session, query: Data) -> list[str]:
    """Put jobs in order."""
    views = [view for key in query["jobs"] if (view := session.view(key)) is not None]
    return [view.key for view in sorted(views, key=session.job_key)]


def enqueueable(session: Session, query: Data) -> dict[str, bool]:
    """Say which jobs would be let in."""
    for key in query.get("first_mark_enqueued", []):
        view = session.view(key)
        if view is not None:
            for callback in session.each("job_enqueued"):
                callback(view)
    result = {}
    for key in query["enqueue"]:
        view = session.view(key)
        result[key] = view is not None and session.vote("job_enqueueable", view)
    return result


VETO_BY_KIND = {
    "preempt": "preemptable",
    "reclaim": "reclaimable",
    "gang_preempt": "gang_evictable",
    "gang_reclaim": "gang_evictable",
}
ACTION_BY_KIND = {"gang_preempt": gang_evicting.PREEMPT, "gang_reclaim": gang_evicting.RECLAIM}


def victims(session: Session, query: Data) -> list[str]:
    """Name the candidates that every plugin allows, one after the other."""
    kinds = [query["as"]] if isinstance(query["as"], str) else query["as"]
    answers = [_victims_as(session, query, kind) for kind in kinds]
    return [key for key in answers[0] if all(key in answer for answer in answers)]


def _revoked(session: Session, query: Data) -> list[str]:
    """Name what would be withdrawn: of the candidates, or of the whole cluster."""
    candidates = query.get("candidates")
    units = withdrawn(session)
    if candidates:
        views = _views(session)
        if not session.each("victims"):
            known = [views[k] for k in candidates if k in views]
            units = [Unit(job, ((role, task, -1),)) for job, role, task in known]
        units = [u for u in units if u.tasks[0][1].key in candidates]
    chosen = []
    for unit in units:
        if all(callback(unit) for callback in session.each("revocable")):
            session.evict(unit, action="shuffle", beneficiary=None)
            chosen.append(unit.tasks[0][1].key)
    return chosen


def _evictor(session: Session, like: JobView, priority: int) -> JobView:
    """Return a job of a priority that does not occur in the case."""
    job = replace(like.job, key="evictor", priority=priority, tasks=())
    return JobView(session.tables.read(job), queue=like.queue, now=session.now)


def gang_victims(session: Session, query: Data) -> list[str]:
    """Name the tasks of a domain that would be evicted, all bundles taken together."""
    job = session.view(query["for"])
    domains = Domains(session.snapshot.hypernodes, session.tables.nodes.index)
    domain = domains.by_name.get(query.get("domain", ""), domains.top)
    if job is None:
        return []
    found = gang_evicting.bundles(
        session,
        ACTION_BY_KIND[query["as"]],
        job,
        domain,
        allow_whole=query.get("allow_whole_bundle", True),
    )
    return sorted(
        {
            task.key
            for bundle in found
            for unit in bundle.units
            for _, task, node in unit.tasks
            if domain.mask[node]
        }
    )


def _victims_as(session: Session, query: Data, kind: str) -> list[str]:
    if kind == "revoke":
        return _revoked(session, query)
    if kind not in VETO_BY_KIND:
        raise UnsupportedCaseError(f"victims as {kind}")
    views = _views(session)
    name = query.get("preemptor") or query.get("for")
    evictor = views.get(str(name)) if name else None
    removed = Removed(session.width)
    chosen = []
    for key in query["candidates"]:
        if key not in views:
            continue
        job, role, task = views[key]
        unit = Unit(job, ((role, task, session.tables.nodes.index.get(task.node or "", -1)),))
        claimant, wanted = (evictor[0], evictor[1]) if evictor is not None else (job, role)
        if "evictor_priority" in query:
            claimant = _evictor(session, job, int(query["evictor_priority"]))
        claim = Claim(ACTION_BY_KIND.get(kind, kind), claimant, wanted, removed)
        if all(callback(claim, unit) for callback in session.each(VETO_BY_KIND[kind])):
            removed.add(unit)
            chosen.append(key)
    return chosen


def backfill_order(session: Session, query: Data) -> list[str]:
    """Name the best-effort pods in the order in which they are tried."""
    del query
    return [
        task.key
        for job, _ in best_effort_order(session)
        for role in roles_in_order(session, job)
        if role.shape.is_best_effort
        for task in reversed(role.pending)
    ]


QUERIES: dict[str, Callable[[Session, Data], object]] = {
    "node_scores": node_scores,
    "node_status": node_status,
    "hypernode_scores": hypernode_scores,
    "feasible_nodes": feasible_nodes,
    "job_order": job_order,
    "enqueueable": enqueueable,
    "victims": victims,
    "gang_victims": gang_victims,
    "backfill_order": backfill_order,
    "steps": steps,
}
