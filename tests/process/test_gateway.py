"""The gateway, a real agent and real tasks, on the real database."""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduling.domain import clock, files, jobs
from scheduling.models import Attempt, Job, JobFile, LogChunk, MetricSample, Node
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


def test_fleet_joins_and_runs_by_one_command(installed: Installed, gateway: GatewayProcess) -> None:
    """Simulated nodes join all at once, and a larger number later joins only what is missing."""
    shape = ("--simulate", "gpus=8,cpu=64,memory=512Gi")
    five = AgentUnderTest(*shape, "--nodes", "5", "--name", "sim")
    seven = AgentUnderTest(*shape, "--nodes", "7", "--name", "sim")
    seven.data = five.data
    token = five.data / "token"
    ready = Node.objects.filter(state="Ready", is_simulated=True).order_by("name")
    try:
        token.write_text(installed.join_token(uses=5))
        five.join_with(gateway.url, token)
        five.start()
        wait_for(lambda: ready.count() == 5)
        five.kill()

        token.write_text(installed.join_token(uses=2))
        seven.join_with(gateway.url, token)
        seven.start()
        wait_for(lambda: ready.count() == 7)
    finally:
        seven.clean_up()
    names = ready.values_list("name", flat=True)
    assert list(names) == [f"sim-{number}" for number in range(7)]


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


def test_code_comes_in_and_outputs_go_out(
    installed: Installed, gateway: GatewayProcess, agent: AgentUnderTest
) -> None:
    """Uploaded code is what the task runs, and what it leaves is kept by path and content."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as container:
        container.writestr("pkg/train.py", "open('model.bin', 'wb').write(b'w' * 70000)\n")
    script = (
        "python3 pkg/train.py && mkdir $TERRACE_OUTPUT/m && mv model.bin $TERRACE_OUTPUT/m/ && "
        "ln -s /etc/passwd $TERRACE_OUTPUT/link && mkfifo $TERRACE_OUTPUT/pipe"
    )
    job = installed.submit("train", ["sh", "-c", script], code=("code.zip", archive.getvalue()))

    installed.bind(job, Node.objects.get())

    assert wait_for(lambda: finished(job)).phase == "Completed"
    output = wait_for(lambda: JobFile.objects.filter(job=job, purpose="output").first())
    assert (output.path, b"".join(files.read(output))) == ("m/model.bin", b"w" * 70_000)
    wait_for(lambda: agent.has_brought(str(output.attempt_id)))
    assert JobFile.objects.filter(job=job, purpose="output").count() == 1


def test_cancelled_job_is_stopped(
    installed: Installed, gateway: GatewayProcess, agent: AgentUnderTest
) -> None:
    """Cancelling ends the process with the role's grace, and the row says so."""
    script = "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    job = installed.submit("long", ["sh", "-c", script])
    (attempt,) = installed.bind(job, Node.objects.get())
    wait_for(lambda: LogChunk.objects.filter(attempt=attempt).first())

    jobs.cancel_job(actor=installed.actor, job_id=job.id, now=clock.database_now())

    wait_for(lambda: Attempt.objects.filter(id=attempt.id, state="Cancelled").first())
    assert agent.processes_of(str(attempt.id)) == {}


def test_gateway_killed_and_back(
    installed: Installed, gateway: GatewayProcess, agent: AgentUnderTest
) -> None:
    """While no gateway runs the task goes on; the next one learns how it ended."""
    script = 'while [ ! -e "$TERRACE_JOB_DIR/go" ]; do sleep 0.02; done; echo went; exit 3'
    job = installed.submit("patient", ["sh", "-c", script])
    (attempt,) = installed.bind(job, Node.objects.get())
    wait_for(lambda: Attempt.objects.filter(id=attempt.id, state="Running").first())

    gateway.kill()
    (agent.data / "jobs" / str(job.id) / "shared" / "go").touch()
    wait_for(lambda: agent.record(str(attempt.id), "exit.json"))
    with GatewayProcess(port=gateway.port):
        wait_for(lambda: Attempt.objects.filter(id=attempt.id, exit_code=3).first())
        chunk = wait_for(lambda: LogChunk.objects.filter(attempt=attempt).first())

    assert bytes(chunk.data or b"") == b"went\n"


def test_commands_wait_for_a_node_that_is_away(
    installed: Installed, gateway: GatewayProcess, agent: AgentUnderTest
) -> None:
    """A launch bound while the agent is away is carried out when it is back, once."""
    agent.kill()
    job = installed.submit("later", ["sh", "-c", 'echo x >> "$TERRACE_JOB_DIR/ledger"'])
    installed.bind(job, Node.objects.get())

    agent.start()

    assert wait_for(lambda: finished(job)).phase == "Completed"
    ledger = agent.data / "jobs" / str(job.id) / "shared" / "ledger"
    assert ledger.read_text() == "x\n"
    assert Attempt.objects.filter(job=job).count() == 1
