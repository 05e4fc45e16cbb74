"""The import contracts hold, and each breaks when its fault is planted."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.meta.source_tree import PACKAGES, ROOT

FAULTS = {
    "web and worker do not meet": ("controlplane/pages/__init__.py", "import worker.protocol"),
    "scheduling is below the web": ("scheduling/domain/jobs.py", "import controlplane.env"),
    "tenants is the lowest layer": ("tenants/domain/access.py", "import scheduling.models"),
    "models know no domain": ("scheduling/models/job.py", "import scheduling.domain.jobs"),
    "plugins are independent": (
        "scheduling/engine/plugins/gang.py",
        "import scheduling.engine.plugins.priority",
    ),
    "the engine has no clock": ("scheduling/engine/cycle.py", "import time"),
    "the engine has no framework": ("scheduling/engine/cycle.py", "import django"),
    "the simulator has no dice": ("scheduling/simulator/state.py", "import random"),
    "scenarios know no rows": ("scheduling/scenario/cases.py", "import scheduling.models"),
    "the agent runs without Django": ("worker/agent/__main__.py", "import django"),
    "the command line runs without Django": ("controlplane/client/__init__.py", "import django"),
}


def _lint(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_contracts_hold() -> None:
    """The tree as it is breaks no contract."""
    result = _lint(ROOT)

    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("fault", FAULTS)
def test_contract_breaks_when_its_fault_is_planted(fault: str, tmp_path: Path) -> None:
    """A copy of the tree with one forbidden import is refused."""
    for package in PACKAGES:
        shutil.copytree(
            ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    name, line = FAULTS[fault]
    target = tmp_path / name
    target.write_text(target.read_text(encoding="utf-8") + f"\n{line}\n", encoding="utf-8")

    result = _lint(tmp_path)

    assert result.returncode != 0, f"nothing noticed {line!r} in {name}"
