"""One module changes states; pages and API change nothing by themselves."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.meta.source_tree import ROOT, parsed, python_files, where

STATE_FIELDS = {"state", "phase"}
WRITERS = {"scheduling/domain/job_work.py", "scheduling/domain/transitions.py"}
EXEMPTIONS = {
    "scheduling/domain/queues.py": "a queue is closed for good once it is empty",
    "scheduling/domain/queue_rows.py": "a queue's state is its own small machine, not a job's",
    "scheduling/domain/change_set_rows.py": "the steps of a plan for queues, no job's state",
    "scheduling/domain/nodes.py": "whether an agent is heard of is no transition of a job",
    "scheduling/domain/delayed_actions.py": "a timer's own waiting, done or dropped",
}
QUERYSET_WRITES = {
    "save",
    "create",
    "get_or_create",
    "update_or_create",
    "bulk_create",
    "bulk_update",
    "delete",
}


def _state_writes(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield assignments to `.state` or `.phase` and queryset updates of them."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Assign, ast.AugAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if (
                    isinstance(target, ast.Attribute)
                    and target.attr in STATE_FIELDS
                    and not (isinstance(target.value, ast.Name) and target.value.id == "self")
                ):
                    yield node
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "update"
            and any(keyword.arg in STATE_FIELDS for keyword in node.keywords)
        ):
            yield node


def _relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_state_is_written_in_one_place() -> None:
    """Only the transition module of the domain writes the state or phase of a row."""
    allowed = WRITERS | EXEMPTIONS.keys()

    found = [
        where(path, node)
        for path in python_files("scheduling/domain", "tenants", "controlplane", "worker/loops")
        if _relative(path) not in allowed
        for node in _state_writes(parsed(path))
    ]

    assert found == []


def test_state_writes_are_recognised() -> None:
    """The three ways of writing a state are all found by the check above."""
    tree = ast.parse("job.phase = x\nrow.state += y\nTask.objects.filter(id=1).update(state=z)")

    assert len(list(_state_writes(tree))) == 3


def _queryset_writes(tree: ast.Module) -> Iterator[ast.Call]:
    """Yield calls of a queryset's or a model's writing methods."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        is_manager = any(
            isinstance(part, ast.Attribute) and part.attr == "objects"
            for part in ast.walk(node.func.value)
        )
        if is_manager and node.func.attr in QUERYSET_WRITES | {"update"}:
            yield node


def test_control_plane_does_not_write_rows() -> None:
    """Pages, API and live views reach the database for writing through domain functions only."""
    found = [
        where(path, node)
        for path in python_files("controlplane")
        for node in _queryset_writes(parsed(path))
    ]

    assert found == []


def test_queryset_writes_are_recognised() -> None:
    """A write through a manager is found, a call of the same name elsewhere is not."""
    source = "Job.objects.filter(id=1).update(name='x')\ndict().update(a=1)\ncache.delete(1)"
    tree = ast.parse(source)

    assert len(list(_queryset_writes(tree))) == 1
