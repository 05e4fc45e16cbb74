"""Every field of the snapshot has a writer, or is listed here as still without one."""

from __future__ import annotations

import ast
from dataclasses import fields
from pathlib import Path

from scheduling.engine import types as engine

DOMAIN = Path(engine.__file__).resolve().parents[1] / "domain"

READ = (
    engine.Snapshot,
    engine.Node,
    engine.Device,
    engine.Queue,
    engine.Job,
    engine.Role,
    engine.Task,
)

WITHOUT_WRITER = {
    "Snapshot.shard": "one scheduler a cluster",
    "Snapshot.disruption_budgets": "to be written by pages and manifests",
    "Snapshot.device_classes": "Kubernetes only",
    "Snapshot.storage_classes": "Kubernetes only",
    "Snapshot.volumes": "storage of jobs is mounted on every node",
    "Snapshot.volume_claims": "storage of jobs is mounted on every node",
    "Node.annotations": "measured load, to be written from the agent's reports",
    "Node.data_sets": "to be written from the agent's caches",
    "Device.driver": "Kubernetes only",
    "Device.attributes": "Kubernetes only",
    "Job.domain": "the plan's own note, where a caller keeps it",
    "Job.admitted_at": "to be written with the phase",
    "Job.min_resources": "None: summed up from the roles",
    "Job.sub_groups": "to be written from the spec",
    "Role.may_evict": "to be written from the priority class",
    "Role.volume_claims": "storage of jobs is mounted on every node",
    "Role.device_claims": "Kubernetes only",
    "Role.data_sets": "to be written from the job's data",
    "Task.nominated_node": "Kubernetes only",
}
"""Field -> why nobody writes it yet; take a line out once somebody does."""


def written() -> set[str]:
    """Return the fields that the domain gives when it makes values of the engine."""
    found = set()
    names = {kind.__name__: [f.name for f in fields(kind)] for kind in READ}
    for path in DOMAIN.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            if name in names:
                found |= {f"{name}.{k.arg}" for k in node.keywords if k.arg}
                found |= {f"{name}.{n}" for n, _ in zip(names[name], node.args, strict=False)}
    return found


def test_every_field_has_a_writer_or_is_listed() -> None:
    """A new field of the snapshot without a writer is noticed."""
    everything = {f"{kind.__name__}.{f.name}" for kind in READ for f in fields(kind)}

    assert everything - written() - set(WITHOUT_WRITER) == set()


def test_no_line_outlives_its_reason() -> None:
    """A field that somebody writes by now is not listed any more."""
    assert sorted(set(WITHOUT_WRITER) & written()) == []


def test_the_list_names_fields_that_exist() -> None:
    """No line outlives its field."""
    everything = {f"{kind.__name__}.{f.name}" for kind in READ for f in fields(kind)}

    assert set(WITHOUT_WRITER) <= everything
