"""What goes wrong around an agent: lost leases, killed shims, damaged records, broken links."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.agent_process import AgentUnderTest
from tests.process.fake_gateway import FakeGateway, wait_for
from worker.protocol import Refused
from worker.shim import processes

FOREVER = ["sh", "-c", "echo started; exec sleep 600"]


@pytest.fixture
def gateway(request: pytest.FixtureRequest) -> Iterator[FakeGateway]:
    with FakeGateway(lease_seconds=getattr(request, "param", 30.0)) as running:
        yield running


short_lease = pytest.mark.parametrize("gateway", [1.5], indirect=True, ids=["1.5s"])


@pytest.fixture
def agent(gateway: FakeGateway) -> Iterator[AgentUnderTest]:
    running = AgentUnderTest().belongs_to(gateway)
    running.start()
    yield running
    running.clean_up()


def start_forever(
    gateway: FakeGateway, agent: AgentUnderTest, attempt: str = "a1"
) -> dict[int, int]:
    gateway.launch(attempt, FOREVER)
    gateway.wait_for_state(attempt, "Running")
    wait_for(lambda: gateway.output(attempt) == b"started\n")
    family = agent.family_of(attempt)
    assert family
    return family


def are_gone(family: dict[int, int]) -> bool:
    return not any(processes.is_alive(pid, started) for pid, started in family.items())


@short_lease
def test_lease_lapses_with_the_agent_dead(agent: AgentUnderTest, gateway: FakeGateway) -> None:
    """Without anybody to renew the lease the shim ends its task by itself."""
    family = start_forever(gateway, agent)

    agent.kill()

    wait_for(lambda: are_gone(family))
    record = wait_for(lambda: agent.record("a1", "exit.json"))
    assert (record["reason"], record["signal"]) == ("LeaseLapsed", signal.SIGKILL)


@short_lease
def test_lease_lapses_with_a_gateway_that_does_not_answer(
    agent: AgentUnderTest, gateway: FakeGateway
) -> None:
    """A half-open link renews nothing, though the agent lives and sends."""
    family = start_forever(gateway, agent)

    gateway.is_answering = False
    wait_for(lambda: are_gone(family))
    gateway.is_answering = True

    ended = gateway.wait_for_state("a1", "Exited")
    assert (ended.reason, ended.signal) == ("LeaseLapsed", signal.SIGKILL)


@short_lease
def test_lease_renewed_keeps_the_task(agent: AgentUnderTest, gateway: FakeGateway) -> None:
    """A task outlives many leases while heartbeats are answered."""
    family = start_forever(gateway, agent)
    first = agent.lease_deadline()

    wait_for(lambda: agent.lease_deadline() > first + 3)

    assert not are_gone(family)


def test_shim_killed(agent: AgentUnderTest, gateway: FakeGateway) -> None:
    """After kill -9 of a shim nothing of its task is left, and that is reported."""
    script = "setsid sleep 600 & echo started; while :; do sleep 0.05; done"
    gateway.launch("a1", ["sh", "-c", script])
    wait_for(lambda: gateway.output("a1") == b"started\n")
    family = agent.family_of("a1")
    record = agent.record("a1", "shim.json")
    assert record is not None

    os.kill(record["pid"], signal.SIGKILL)

    ended = gateway.wait_for_state("a1", "Exited")
    assert (ended.reason, ended.signal) == ("ShimLost", signal.SIGKILL)
    assert are_gone(family)


@pytest.mark.parametrize("damage", ["deleted", "torn", "flipped"])
@pytest.mark.parametrize("name", ["launch.json", "shim.json", "reported.json", "spec.json"])
def test_record_damaged_while_agent_is_dead(
    agent: AgentUnderTest, gateway: FakeGateway, name: str, damage: str
) -> None:
    """Whatever record is lost, the same process goes on and no second one is started."""
    family = start_forever(gateway, agent)
    path = agent.data / "attempts" / "a1" / name
    wait_for(path.exists)
    agent.kill()
    content = bytearray(path.read_bytes())
    if damage == "deleted":
        path.unlink()
    elif damage == "torn":
        path.write_bytes(content[: len(content) // 2])
    else:
        content[len(content) // 3] ^= 0x20
        path.write_bytes(content)

    agent.start()

    assert [item.attempt for item in gateway.hellos[-1].attempts] == ["a1"]
    assert agent.living("a1") & family.keys() != set()
    gateway.stop("a1", grace_seconds=0.1)
    ended = gateway.wait_for_state("a1", "Exited")
    assert are_gone(family)
    assert ended.attempt == "a1"
    assert wait_for(lambda: gateway.output("a1")) == b"started\n"


def test_all_records_gone(agent: AgentUnderTest, gateway: FakeGateway) -> None:
    """A process whose records are gone is ended and reported, never left and never repeated."""
    family = start_forever(gateway, agent)
    agent.kill()
    agent.remove_records("a1")

    agent.start()

    ended = gateway.wait_for_state("a1", "Exited")
    assert ended.reason == "RecordsLost"
    wait_for(lambda: are_gone(family))


def test_machine_restarted(agent: AgentUnderTest, gateway: FakeGateway) -> None:
    """Records of another boot are never adopted, whatever pid they name."""
    family = start_forever(gateway, agent)
    agent.kill()
    agent.pretend_other_boot("a1", family)

    agent.start()

    ended = gateway.wait_for_state("a1", "Exited")
    assert ended.reason == "NodeRebooted"


def test_connection_lost_and_back(agent: AgentUnderTest, gateway: FakeGateway) -> None:
    """What happened while the link was down arrives in the next session, numbered from 1."""
    script = 'while [ ! -e "$TERRACE_JOB_DIR/go" ]; do sleep 0.02; done; echo done; exit 4'
    gateway.launch("a1", ["sh", "-c", script])
    gateway.wait_for_state("a1", "Running")
    gateway.is_answering = False
    (agent.data / "jobs" / "job-1" / "shared" / "go").touch()
    wait_for(lambda: agent.record("a1", "exit.json"))

    gateway.is_answering = True
    gateway.disconnect()

    assert gateway.wait_for_state("a1", "Exited").exit_code == 4
    assert wait_for(lambda: gateway.output("a1")) == b"done\n"
    last = gateway.reports[-1].session
    assert next(one.seq for one in gateway.reports if one.session == last) == 1


def test_welcome_ends_what_is_not_wanted(agent: AgentUnderTest, gateway: FakeGateway) -> None:
    """An attempt that the control plane has given up is ended as soon as the link is back."""
    family = start_forever(gateway, agent)
    gateway.stop_at_welcome = ["a1"]

    gateway.disconnect()

    ended = gateway.wait_for_state("a1", "Exited")
    assert ended.reason == "NotWanted"
    assert are_gone(family)


def test_superseded_agent_gives_up(agent: AgentUnderTest, gateway: FakeGateway) -> None:
    """The older of two agents with one identity ends and does not come back."""
    gateway.send(Refused("superseded", "a newer session was opened"))

    assert agent.wait() == 4
    assert "superseded" in agent.log()


def test_second_agent_on_the_folder(agent: AgentUnderTest, gateway: FakeGateway) -> None:
    """Two agents cannot share a data folder."""
    assert agent.run_another() == 2


def test_interrupt_ends_tasks_with_their_grace(agent: AgentUnderTest, gateway: FakeGateway) -> None:
    """SIGINT ends the tasks first, and the control plane knows before the agent is gone."""
    script = "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    gateway.launch("a1", ["sh", "-c", script])
    wait_for(lambda: gateway.output("a1") == b"ready\n")

    status = agent.kill(signal.SIGINT)

    (ended,) = [one for one in gateway.of("a1") if one.state == "Exited"]
    assert (status, ended.reason, ended.exit_code) == (0, "NodeShutdown", 0)


def test_terminated_agent_leaves_tasks(agent: AgentUnderTest, gateway: FakeGateway) -> None:
    """SIGTERM ends the agent alone, as for an upgrade."""
    family = start_forever(gateway, agent)

    status = agent.kill(signal.SIGTERM)

    assert (status, are_gone(family)) == (0, False)


def test_flood_of_output_is_capped(agent: AgentUnderTest, gateway: FakeGateway) -> None:
    """A task may write for ever; its log stops at the cap, with a marker."""
    gateway.launch(
        "a1",
        ["sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' 'x' | fold -w 100; echo end >&2"],
        log_limit_bytes=100_000,
    )
    gateway.wait_for_state("a1", "Exited")

    size = (agent.data / "attempts" / "a1" / "stdout.log").stat().st_size
    sent = wait_for(lambda: gateway.output("a1") if len(gateway.output("a1")) == size else None)

    marker = (
        b"\n[terrace: output ends here, the limit of 100000 bytes for this attempt is reached]\n"
    )
    assert sent.endswith(marker)
    assert len(sent) == 100_000 + len(marker)
    chunks = [chunk for one in gateway.reports for chunk in one.logs if chunk.stream == "stdout"]
    assert [chunk.offset for chunk in chunks if chunk.is_dropped] == [100_000]


def test_time_limit(agent: AgentUnderTest, gateway: FakeGateway) -> None:
    """A task that runs for its limit is ended, and that is the reason."""
    gateway.launch("a1", FOREVER, time_limit_seconds=0.5, grace_seconds=0.2)

    ended = gateway.wait_for_state("a1", "Exited")

    assert (ended.reason, ended.signal) == ("TimeLimit", signal.SIGTERM)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"argv": ["no-such-program"]}, "program no-such-program: No such file"),
        ({"argv": ["true"], "runtime": "quantum"}, "runtime 'quantum' is not offered here"),
        ({"argv": []}, "argv is empty"),
        ({"argv": ["true"], "working_dir": "/no/such"}, "working folder /no/such"),
        ({"argv": ["true"], "working_dir": "../.."}, "below the task's folder"),
        ({"argv": ["true"], "environment": {"A=B": "c"}}, "environment 'A=B'"),
        ({"argv": ["true"], "cpus": [100_000]}, "CPU affinity"),
        ({"argv": ["true"], "git_url": "ext::sh -c id"}, "git_url"),
        ({"argv": ["true"], "git_url": "file:///no/such"}, "git clone failed"),
    ],
)
def test_launch_that_cannot_start(
    agent: AgentUnderTest, gateway: FakeGateway, fields: dict[str, object], words: str
) -> None:
    """What cannot be started says which part was wrong, and has no exit code."""
    argv = fields.pop("argv")
    assert isinstance(argv, list)
    gateway.launch("a1", argv, **fields)

    ended = gateway.wait_for_state("a1", "Exited")

    assert (ended.reason, ended.exit_code) == ("LaunchFailed", None)
    assert words in ended.message


def test_foreign_folder_is_left_alone(agent: AgentUnderTest, gateway: FakeGateway) -> None:
    """A name that cannot be an attempt's is refused, and nothing is made outside."""
    gateway.launch("../../escape", ["true"])

    done = wait_for(lambda: gateway.done)

    assert done[0].refused == "BadCommand"
    assert not (Path(agent.data).parent / "escape").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk")
def test_full_disk_ends_nothing_and_forgets_nothing(gateway: FakeGateway) -> None:
    """On a full disk leases are renewed, tasks go on, and ends are recorded once it is possible."""
    with tempfile.TemporaryDirectory(prefix="small-disk-") as name:
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=2m,mode=0755", "none", name], check=True
        )
        try:
            agent = AgentUnderTest(parent=Path(name)).belongs_to(gateway)
            agent.start()
            script = 'while [ ! -e "$TERRACE_JOB_DIR/go" ]; do sleep 0.02; done; exit 6'
            gateway.launch("a1", ["sh", "-c", script])
            gateway.wait_for_state("a1", "Running")
            (agent.data / "jobs" / "job-1" / "shared" / "other").touch()
            filler = fill(Path(name))
            gateway.launch("a2", ["true"])
            refused = wait_for(lambda: next((d for d in gateway.done if d.refused), None))
            before = agent.lease_deadline()
            wait_for(lambda: agent.lease_deadline() > before)
            other = agent.data / "jobs" / "job-1" / "shared" / "other"
            other.rename(other.with_name("go"))
            wait_for(lambda: agent.processes_of("a1") == {})
            filler.unlink()

            assert gateway.wait_for_state("a1", "Exited").exit_code == 6
            assert refused.refused == "NotStored: No space left on device"
        finally:
            agent.clean_up()
            subprocess.run(["umount", "--lazy", name], check=True)


def fill(folder: Path) -> Path:
    """Leave no byte on the disk."""
    path = folder / "filler"
    with path.open("wb", buffering=0) as stream, contextlib.suppress(OSError):
        while True:
            stream.write(b"x" * 4096)
    return path
