"""`make demo` from nothing: an organisation, four simulated nodes, 200 jobs and three kills."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.process.patient_api import VIOLATIONS
from tests.process.running import (
    CHECKOUT,
    MINIMAL_ENVIRONMENT,
    PATIENCE_SECONDS,
    Up,
    data_folder,
    remove,
)

JOBS = 200
ARGUMENTS = (f"--jobs={JOBS}", "--nodes=4", "--speed=400", "--burst=20")
VICTIMS = ("loops", "web", "gateway")
ROLES = """
import json
from tenants.models import Grant, OrgUnit
print(json.dumps({
    "roles": sorted(set(Grant.objects.values_list("role", flat=True))),
    "departments": sorted(OrgUnit.objects.filter(kind="department").values_list("name", flat=True)),
    "tenants": OrgUnit.objects.filter(name__in=["Company", "Startup"], parent=None).count(),
}))
"""


@pytest.fixture
def up() -> Iterator[Up]:
    data = data_folder()
    running = Up(data)
    yield running
    if running.process.poll() is None:
        running.end()
    remove(data)


def kill(up: Up, victim: str) -> None:
    """Kill one program of the installation with the processes that it works in."""
    main = psutil.Process(up.pid_of(victim))
    for process in (*main.children(recursive=True), main):
        process.kill()


def demo(up: Up) -> tuple[int, str, str]:
    """Run it, kill a part of the installation three times, and return status, report and words."""
    data = up.data
    out, words = data.parent / "report", data.parent / "words"
    with out.open("wb") as report, words.open("wb") as said:
        running = subprocess.Popen(
            [sys.executable, "-m", "controlplane.demo", *ARGUMENTS],
            cwd=CHECKOUT,
            env={
                **MINIMAL_ENVIRONMENT,
                "TERRACE_DATA": str(data),
                "TZ": os.environ.get("TZ", "UTC"),
            },
            stdout=report,
            stderr=said,
        )
    deadline = time.monotonic() + PATIENCE_SECONDS
    while "Watch it at" not in words.read_text(encoding="utf-8") and running.poll() is None:
        assert time.monotonic() < deadline, words.read_text(encoding="utf-8")
        time.sleep(0.1)
    for victim in VICTIMS:
        time.sleep(1.0)
        kill(up, victim)
    status = running.wait(timeout=PATIENCE_SECONDS)
    return status, out.read_text(encoding="utf-8"), words.read_text(encoding="utf-8")


def test_demo_survives_kills_and_reports(up: Up) -> None:
    """All jobs complete, once each, the shares are the exact ones, and no rule is broken."""
    up.address()

    status, printed, words = demo(up)

    assert status == 0, words
    report = json.loads(printed)
    everything = report["waits"]["all"]
    assert (report["jobs"], everything["completed"], everything["unfinished"]) == (JOBS, JOBS, 0)
    assert sum(one["jobs"] for one in report["waits"]["queues"].values()) == JOBS
    assert report["burst"]["submissions_per_second"] > 0
    fairness = report["fairness"]
    assert fairness["cycles"] >= 1
    cycles = Path(fairness["cycles_file"]).read_text(encoding="utf-8").splitlines()
    assert len(cycles) == fairness["cycles"]
    assert fairness["worst_difference_deserved_gpus"] <= 1
    made = json.loads(up.ask(ROLES))
    assert made["departments"] == ["Language", "Speech", "Vision"]
    assert made["tenants"] == 2
    assert made["roles"] == sorted(
        ["auditor", "org_admin", "platform_admin", "queue_manager", "researcher", "viewer"]
    )
    assert (up.data / "demo" / "people.json").stat().st_mode & 0o077 == 0
    up.ask(VIOLATIONS)
