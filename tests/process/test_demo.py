"""`make demo` from nothing: an organisation, four simulated nodes and forty jobs of the excerpt."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.running import (
    CHECKOUT,
    MINIMAL_ENVIRONMENT,
    PATIENCE_SECONDS,
    Up,
    data_folder,
    remove,
)

ARGUMENTS = ("--jobs=40", "--nodes=4", "--speed=80", "--burst=20")
ROLES = """
import json
from tenants.models import Grant, OrgUnit
print(json.dumps({
    "roles": sorted(set(Grant.objects.values_list("role", flat=True))),
    "departments": sorted(OrgUnit.objects.filter(kind="department").values_list("name", flat=True)),
}))
"""
VIOLATIONS = """
from django.core.management import call_command
call_command("check_invariants")
"""


@pytest.fixture
def up() -> Iterator[Up]:
    data = data_folder()
    running = Up(data)
    yield running
    if running.process.poll() is None:
        running.end()
    remove(data)


def demo(data: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "controlplane.demo", *ARGUMENTS],
        cwd=CHECKOUT,
        env={**MINIMAL_ENVIRONMENT, "TERRACE_DATA": str(data), "TZ": os.environ.get("TZ", "UTC")},
        capture_output=True,
        check=False,
        text=True,
        timeout=PATIENCE_SECONDS,
    )


def test_demo_replays_its_excerpt_and_reports(up: Up) -> None:
    """All jobs complete, the shares computed are the exact ones, and no rule is broken."""
    up.address()

    done = demo(up.data)

    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    figures = report["waits"]
    assert (report["jobs"], figures["all"]["completed"], figures["all"]["unfinished"]) == (
        40,
        40,
        0,
    )
    assert sum(one["jobs"] for one in figures["queues"].values()) == 40
    assert report["burst"]["submissions_per_second"] > 0
    fairness = report["fairness"]
    assert fairness["cycles"] >= 1
    cycles = Path(fairness["cycles_file"]).read_text(encoding="utf-8").splitlines()
    assert len(cycles) == fairness["cycles"]
    assert fairness["worst_difference_of_deserved_tasks"] <= 1
    made = json.loads(up.ask(ROLES))
    assert made["departments"] == ["Language", "Speech", "Vision"]
    assert made["roles"] == sorted(
        ["auditor", "org_admin", "platform_admin", "queue_manager", "researcher", "viewer"]
    )
    assert (up.data / "demo" / "people.json").stat().st_mode & 0o077 == 0
    up.ask(VIOLATIONS)
