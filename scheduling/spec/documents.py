"""Files with several objects: queues, priority classes, gangs, flows and schedules beside jobs.

Each document of a file becomes an `Imported`: what it is, its value if nothing is wrong, and its
problems and notes at paths of its own. What Terrace has no use for is refused by its kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from scheduling.lifecycle.flows import FlowStep
from scheduling.spec import start_order, volcano
from scheduling.spec.job_spec import JobSpec
from scheduling.spec.limits import DEFAULT_LIMITS, Limits
from scheduling.spec.parse import Format, complete, is_job, read
from scheduling.spec.problems import Note, Problem
from scheduling.spec.quantities import write_bytes, write_thousandths
from scheduling.spec.reader import Findings, MapReader, counts_in_bytes, read_amount
from scheduling.spec.rules import is_subdomain
from scheduling.spec.schedule_rules import check_schedule
from scheduling.spec.yaml_loader import UnreadableDocumentError, load_documents

Amounts = Mapping[str, int]
QUEUE_API = "scheduling.volcano.sh/v1beta1"


@dataclass(frozen=True, slots=True)
class QueueManifest:
    """A queue as a manifest states it; amounts in the engine's units.

    Imported queues keep their min free (`lend_min` False), as Volcano does. `remainder` holds what
    Terrace keeps without acting on it (affinity to node groups, clusters to forward to).
    """

    name: str
    parent: str = ""
    weight: int = 1
    priority: int = 0
    min: Amounts = field(default_factory=dict)
    max: Amounts = field(default_factory=dict)
    deserved: Amounts | None = None
    reclaimable: bool = True
    lend_min: bool = False
    is_fifo: bool = False
    is_closed: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    remainder: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PriorityClassManifest:
    """A priority class: a name for a number."""

    name: str
    value: int
    is_default: bool = False
    preemption_policy: str = "PreemptLowerPriority"
    description: str = ""


@dataclass(frozen=True, slots=True)
class GangManifest:
    """A gang record of a workload that is no job of ours."""

    name: str
    namespace: str
    queue: str
    min_member: int
    min_task_member: Mapping[str, int]
    min_resources: Mapping[str, str]
    priority_class: str
    phase: str


@dataclass(frozen=True, slots=True)
class FlowManifest:
    """A flow: its steps name templates; `patches` change a step's template."""

    name: str
    steps: tuple[FlowStep, ...]
    keeps_jobs: bool
    patches: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class TemplateManifest:
    """A job kept as a template."""

    name: str
    spec: JobSpec


@dataclass(frozen=True, slots=True)
class ScheduleManifest:
    """A schedule and the job that it starts."""

    name: str
    expression: str
    spec: JobSpec
    time_zone: str | None = None
    concurrency: str = "Allow"
    is_suspended: bool = False
    starting_deadline_seconds: int | None = None
    keep_successful: int = 3
    keep_failed: int = 1


Value = (
    JobSpec
    | QueueManifest
    | PriorityClassManifest
    | GangManifest
    | FlowManifest
    | TemplateManifest
    | ScheduleManifest
)


@dataclass(frozen=True, slots=True)
class Imported:
    """One document of a file."""

    position: int
    kind: str
    name: str
    value: Value | None
    problems: tuple[Problem, ...] = ()
    notes: tuple[Note, ...] = ()


def read_documents(
    text: str | bytes, *, name_suffix: str = "", limits: Limits = DEFAULT_LIMITS
) -> list[Imported]:
    """Return what each document of a YAML text is; an unreadable text is one refused document."""
    try:
        documents = load_documents(text, limits=limits)
    except UnreadableDocumentError as error:
        return [Imported(0, "", "", None, (error.problem,))]
    return [
        _read(number, document, name_suffix, limits) for number, document in enumerate(documents)
    ]


def _read(number: int, document: Any, name_suffix: str, limits: Limits) -> Imported:
    if not isinstance(document, dict):
        problem = Problem("$", "wrong_type", {"expected": "a map", "value": f"{document!r:.80}"})
        return Imported(number, "", "", None, (problem,))
    kind, api = str(document.get("kind") or ""), str(document.get("apiVersion") or "")
    metadata = document.get("metadata")
    name = str(metadata.get("name") or "") if isinstance(metadata, dict) else ""
    if is_job(document) and (not api or api.startswith(("batch.volcano.sh/", "terrace/"))):
        parsed = read(document, form=Format.JSON, name_suffix=name_suffix, limits=limits)
        found = parsed.spec.name if parsed.spec else name
        return Imported(number, kind, found, parsed.spec, parsed.problems, parsed.notes)
    reader = _READERS.get((api.partition("/")[0], kind))
    if reader is None:
        code = "unsupported_kind" if kind else "required"
        problem = Problem("kind", code, {"kind": kind[:80], "api": api[:80]})
        return Imported(number, kind, name, None, (problem,))
    findings = Findings()
    value = reader(MapReader(document, "", findings), findings)
    problems = tuple(findings.problems)
    return Imported(
        number, kind, name, None if problems else value, problems, tuple(findings.notes)
    )


def _name_of(top: MapReader) -> str:
    metadata = top.sub("metadata")
    name = (metadata.text("name") or "") if metadata else ""
    if not name:
        top.findings.refuse("metadata.name", "required")
    elif not is_subdomain(name):
        top.findings.refuse("metadata.name", "invalid_name", name=name[:80])
    return name


def _texts_of(top: MapReader, key: str) -> dict[str, str]:
    metadata = top.sub("metadata")
    return metadata.text_map(key) if metadata else {}


def _spec_of(top: MapReader) -> MapReader:
    return top.sub("spec") or MapReader({}, "spec", top.findings)


# --- queues and priorities ----------------------------------------------------------------------

_QUEUE_REMAINDER = ("affinity", "extendClusters", "type", "allowedNamespaces")
_MOST_WEIGHT = 65_535


def _read_queue(top: MapReader, findings: Findings) -> QueueManifest:
    spec = _spec_of(top)
    guarantee = spec.sub("guarantee")
    weight = spec.whole("weight")
    if weight is not None and not 1 <= weight <= _MOST_WEIGHT:
        findings.refuse(spec.at("weight"), "weight_out_of_range", value=weight)
    remainder = {key: spec.raw(key) for key in _QUEUE_REMAINDER if spec.raw(key) is not None}
    status = top.sub("status")
    queue = QueueManifest(
        name=_name_of(top),
        parent=spec.text("parent") or "",
        weight=1 if weight is None else weight,
        priority=spec.whole("priority") or 0,
        min=_amounts(guarantee, "resource") if guarantee else {},
        max=_amounts(spec, "capability"),
        deserved=_amounts(spec, "deserved") if spec.raw("deserved") is not None else None,
        reclaimable=spec.flag("reclaimable") is not False,
        is_fifo=spec.text("dequeueStrategy") == "fifo",
        is_closed=bool(status) and (status.text("state") if status else "") == "Closed",
        labels=_texts_of(top, "labels"),
        annotations=_texts_of(top, "annotations"),
        remainder=remainder,
    )
    for key in spec.unknown():
        findings.note(spec.at(key), "field_ignored", field=key)
    _check_limits(queue, findings)
    return queue


def _amounts(owner: MapReader, key: str) -> dict[str, int]:
    return {
        name: read_amount(name, value, f"{owner.at(key)}.{name}", owner.findings)
        for name, value in owner.map(key).items()
    }


def _check_limits(queue: QueueManifest, findings: Findings) -> None:
    """Min <= deserved <= max for each resource, where they are stated."""
    for resource, amount in queue.min.items():
        upper = queue.max if queue.deserved is None else queue.deserved
        if resource in upper and amount > upper[resource]:
            path = f"spec.guarantee.resource.{resource}"
            code = "min_above_max" if queue.deserved is None else "deserved_below_min"
            findings.refuse(path, code, resource=resource)
    for resource, amount in (queue.deserved or {}).items():
        if resource in queue.max and amount > queue.max[resource]:
            findings.refuse(f"spec.deserved.{resource}", "deserved_above_max", resource=resource)


def queue_to_manifest(queue: QueueManifest) -> dict[str, Any]:
    """Return the Volcano Queue; reading it back gives an equal queue."""
    metadata: dict[str, Any] = {"name": queue.name}
    spec: dict[str, Any] = {"weight": queue.weight, "reclaimable": queue.reclaimable}
    for target, key, value in (
        (metadata, "labels", dict(queue.labels)),
        (metadata, "annotations", dict(queue.annotations)),
        (spec, "parent", queue.parent),
        (spec, "priority", queue.priority),
        (spec, "capability", _written(queue.max)),
        (spec, "dequeueStrategy", "fifo" if queue.is_fifo else ""),
    ):
        if value:
            target[key] = value
    if queue.min:
        spec["guarantee"] = {"resource": _written(queue.min)}
    if queue.deserved is not None:
        spec["deserved"] = _written(queue.deserved)
    document = {"apiVersion": QUEUE_API, "kind": "Queue", "metadata": metadata}
    document["spec"] = {**spec, **queue.remainder}
    if queue.is_closed:
        document["status"] = {"state": "Closed"}
    return document


def _written(amounts: Amounts) -> dict[str, str]:
    return {
        name: write_bytes(amount) if counts_in_bytes(name) else write_thousandths(amount)
        for name, amount in amounts.items()
    }


def _read_priority_class(top: MapReader, findings: Findings) -> PriorityClassManifest:
    value = top.whole("value")
    if value is None:
        findings.refuse("value", "required")
    return PriorityClassManifest(
        name=_name_of(top),
        value=value or 0,
        is_default=bool(top.flag("globalDefault")),
        preemption_policy=top.text("preemptionPolicy") or "PreemptLowerPriority",
        description=top.text("description") or "",
    )


def _read_gang(top: MapReader, findings: Findings) -> GangManifest:
    spec, metadata, status = _spec_of(top), top.sub("metadata"), top.sub("status")
    members = spec.map("minTaskMember")
    for role, count in members.items():
        if not isinstance(count, int) or isinstance(count, bool):
            path = f"{spec.at('minTaskMember')}.{role}"
            findings.refuse(path, "wrong_type", expected="a whole number", value=f"{count!r:.80}")
    return GangManifest(
        name=_name_of(top),
        namespace=(metadata.text("namespace") or "") if metadata else "",
        queue=spec.text("queue") or "default",
        min_member=spec.whole("minMember") or 0,
        min_task_member=members,
        min_resources=spec.text_map("minResources"),
        priority_class=spec.text("priorityClassName") or "",
        phase=(status.text("phase") or "") if status else "",
    )


# --- flows, templates, schedules ----------------------------------------------------------------


def _read_flow(top: MapReader, findings: Findings) -> FlowManifest:
    spec = _spec_of(top)
    steps: dict[str, FlowStep] = {}
    patches: dict[str, Mapping[str, Any]] = {}
    for flow in spec.maps("flows"):
        name = flow.text("name") or ""
        depends_on = flow.sub("dependsOn")
        targets = (depends_on.texts("targets") or []) if depends_on else []
        if not name:
            findings.refuse(flow.at("name"), "required")
        elif name in steps:
            findings.refuse(flow.at("name"), "duplicate_step", name=name[:80])
        steps[name] = FlowStep(name, tuple(targets))
        if flow.map("patch"):
            patches[name] = flow.map("patch")
    _check_steps(steps, spec.at("flows"), findings)
    keeps = spec.text("jobRetainPolicy") != "delete"
    return FlowManifest(_name_of(top), tuple(steps.values()), keeps, patches)


def _check_steps(steps: Mapping[str, FlowStep], path: str, findings: Findings) -> None:
    for number, step in enumerate(steps.values()):
        for target in step.depends_on:
            if target not in steps:
                where = f"{path}[{number}].dependsOn.targets"
                findings.refuse(where, "unknown_step", step=step.name[:80], name=target[:80])
    found = start_order.find_order({step.name: step.depends_on for step in steps.values()})
    if found.cycle:
        findings.refuse(path, "flow_cycle", path=" -> ".join(found.cycle))


def _read_template(top: MapReader, findings: Findings) -> TemplateManifest | None:
    name = _name_of(top)
    spec = _job_spec(_spec_of(top), name, findings)
    return None if spec is None else TemplateManifest(name, spec)


def _job_spec(reader: MapReader, name: str, findings: Findings) -> JobSpec | None:
    """Read the job inside another object; its problems are named below that object's path."""
    own = Findings()
    inner = MapReader(reader.value, "spec", own)
    plain = {"name": name, **volcano.read_job_spec(inner)}
    parsed = complete(plain, own, is_manifest=True)
    for problem in parsed.problems:
        path = problem.path.replace("spec", reader.path, 1)
        findings.refuse(path, problem.code, **problem.params)
    for note in parsed.notes:
        findings.note(note.path.replace("spec", reader.path, 1), note.code, **note.params)
    return parsed.spec


def _read_schedule(top: MapReader, findings: Findings) -> ScheduleManifest | None:
    spec, name = _spec_of(top), _name_of(top)
    template = spec.sub("jobTemplate") or MapReader({}, spec.at("jobTemplate"), findings)
    job = _job_spec(
        template.sub("spec") or MapReader({}, template.at("spec"), findings), name, findings
    )
    numbers = {
        key: spec.whole(key)
        for key in (
            "startingDeadlineSeconds",
            "successfulJobsHistoryLimit",
            "failedJobsHistoryLimit",
        )
    }
    expression, zone = spec.text("schedule") or "", spec.text("timeZone")
    concurrency = spec.text("concurrencyPolicy") or "Allow"
    for problem in check_schedule(
        expression=expression,
        zone=zone,
        name=name or None,
        concurrency=concurrency,
        numbers=numbers,
    ):
        path = _SCHEDULE_PATHS.get(problem.path, f"spec.{problem.path}")
        findings.refuse(path, problem.code, **problem.params)
    if job is None:
        return None
    keep_successful, keep_failed = (
        numbers["successfulJobsHistoryLimit"],
        numbers["failedJobsHistoryLimit"],
    )
    return ScheduleManifest(
        name=name,
        expression=expression,
        spec=job,
        time_zone=zone,
        concurrency=concurrency,
        is_suspended=bool(spec.flag("suspend")),
        starting_deadline_seconds=numbers["startingDeadlineSeconds"],
        keep_successful=3 if keep_successful is None else keep_successful,
        keep_failed=1 if keep_failed is None else keep_failed,
    )


_SCHEDULE_PATHS = {
    "name": "metadata.name",
    "time_zone": "spec.timeZone",
    "concurrency": "spec.concurrencyPolicy",
}

_READERS: Mapping[tuple[str, str], Callable[[MapReader, Findings], Value | None]] = {
    ("scheduling.volcano.sh", "Queue"): _read_queue,
    ("scheduling.volcano.sh", "PodGroup"): _read_gang,
    ("scheduling.k8s.io", "PriorityClass"): _read_priority_class,
    ("flow.volcano.sh", "JobFlow"): _read_flow,
    ("flow.volcano.sh", "JobTemplate"): _read_template,
    ("batch.volcano.sh", "CronJob"): _read_schedule,
}
