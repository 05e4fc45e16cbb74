"""Every field of the snapshot has a writer, or is listed here with the reason for none."""

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
    "Snapshot.shard": "one scheduler has the whole of its cluster",
    "Snapshot.device_classes": "Kubernetes only",
    "Snapshot.storage_classes": "Kubernetes only",
    "Snapshot.volumes": "Kubernetes only: storage of jobs is mounted on every node",
    "Snapshot.volume_claims": "Kubernetes only: storage of jobs is mounted on every node",
    "Device.driver": "Kubernetes only",
    "Device.attributes": "Kubernetes only",
    "Job.domain": "where the tasks of a job lie says it",
    "Role.volume_claims": "Kubernetes only: storage of jobs is mounted on every node",
    "Role.device_claims": "Kubernetes only",
    "Task.nominated_node": "Kubernetes only",
}
"""Field -> why nobody writes it; take a line out once somebody does."""


def written() -> set[str]:
    """Return the fields that the domain gives when it makes values of the engine."""
    found = set()
    names = {kind.__name__: [f.name for f in fields(kind)] for kind in READ}
    for path in DOMAIN.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            if isinstance(node.func, ast.Name) and node.func.id == "replace":
                name = node.args[0].id.capitalize() if isinstance(node.args[0], ast.Name) else ""
                found |= {f"{name}.{k.arg}" for k in node.keywords if name in names}
                continue
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
