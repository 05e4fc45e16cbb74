"""The gateway, a real agent and real tasks, on the real database."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduling.models import Attempt, Job, LogChunk, MetricSample, Node
from tenants.models import OutboxRow
from tests.process.agent_process import ROOT, AgentUnderTest
from tests.process.fake_gateway import wait_for
from tests.process.gateway_process import GatewayProcess, Installed

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def installed() -> Installed:
    return Installed()


@pytest.fixture
def gateway(installed: Installed) -> Iterator[GatewayProcess]:
    with GatewayProcess() as running:
        yield running


def join(
    gateway: GatewayProcess, token: str, data: Path, *more: str
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "worker.agent", "join", "--server", gateway.url]
    command += ["--token", token, "--data", str(data), "--name", "machine", *more]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_join_token_works_once(
    installed: Installed, gateway: GatewayProcess, tmp_path: Path
) -> None:
    """The second use of a token is refused with the way out, and makes no node."""
    token = installed.join_token()

    first = join(gateway, token, tmp_path / "one")
    second = join(gateway, token, tmp_path / "two")

    assert (first.returncode, second.returncode) == (0, 2)
    assert "A token works once" in second.stderr
    assert not (tmp_path / "two" / "node.json").exists()
    assert (tmp_path / "one" / "node.json").stat().st_mode & 0o777 == 0o600
    assert Node.objects.count() == 1


@pytest.fixture
def agent(installed: Installed, gateway: GatewayProcess) -> Iterator[AgentUnderTest]:
    running = AgentUnderTest()
    token = running.data / "token"
    token.write_text(installed.join_token())
    running.join_with(gateway.url, token)
    running.start()
    wait_for(lambda: Node.objects.filter(state="Ready").first())
    yield running
    running.clean_up()


def finished(job: Job) -> Job | None:
    return Job.objects.filter(id=job.id, phase__in=("Completed", "Failed")).first()


def test_job_runs_through_gateway_and_agent(
    installed: Installed, gateway: GatewayProcess, agent: AgentUnderTest
) -> None:
    """A submitted job is bound, launched by a real agent, and all of it comes back to the rows."""
    script = (
        'echo hello; echo \'{"loss": 0.5, "step": 1}\' >> "$TERRACE_METRICS"; '
        "echo world >&2; exit 0"
    )
    job = installed.submit("hello", ["sh", "-c", script], cpu_milli=100, memory_bytes=64 << 20)

    (attempt,) = installed.bind(job, Node.objects.get())

    assert wait_for(lambda: finished(job)).phase == "Completed"
    attempt.refresh_from_db()
    assert (attempt.state, attempt.exit_code) == ("Succeeded", 0)
    wait_for(lambda: LogChunk.objects.filter(attempt=attempt).count() == 2)
    chunks = LogChunk.objects.filter(attempt=attempt).order_by("stream")
    assert [(one.stream, bytes(one.data or b"")) for one in chunks] == [
        ("stderr", b"world\n"),
        ("stdout", b"hello\n"),
    ]
    assert wait_for(lambda: MetricSample.objects.filter(job=job).first()).values == {
        "loss": 0.5,
        "step": 1.0,
    }
    wait_for(lambda: not OutboxRow.objects.filter(node__isnull=False).exists())
