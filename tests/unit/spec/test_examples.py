"""The examples are jobs that can be submitted as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduling.spec.job_plugins import environment
from scheduling.spec.job_spec import JobSpec
from scheduling.spec.parse import Format, parse, read
from scheduling.spec.volcano import to_manifest

FOLDER = Path(__file__).resolve().parents[3] / "examples"
EXAMPLES = [
    path
    for path in sorted(FOLDER.rglob("*.yaml"))
    if "kind: Job\n" in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_accepted_without_a_remark(path: Path) -> None:
    """It also survives the way out and back, as a manifest."""
    parsed = read(path.read_text(encoding="utf-8"), form=Format.YAML)

    assert (parsed.problems, parsed.notes) == ((), ())
    assert parsed.spec is not None
    manifest = to_manifest(parsed.spec)
    assert to_manifest(_accepted(parse(manifest, form=Format.JSON))) == manifest


def _accepted(result: object) -> JobSpec:
    assert isinstance(result, JobSpec)
    return result


def test_both_forms_of_the_training_give_the_processes_the_same() -> None:
    """What the plugins inject does not depend on how the job was written."""
    specs = [
        _accepted(
            parse((FOLDER / "allreduce" / name).read_text(encoding="utf-8"), form=Format.YAML)
        )
        for name in ("job.yaml", "job-volcano.yaml")
    ]
    wanted = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "VC_TASK_INDEX")

    found = [[environment(spec, "worker", 2).env[name] for name in wanted] for spec in specs]

    assert found == [["allreduce-master-0.allreduce", "23456", "3", "4", "2"]] * 2
