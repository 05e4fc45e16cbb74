"""The agent and its shims as real processes, against the smallest gateway there is."""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.process.agent_process import AgentUnderTest
from tests.process.fake_gateway import FakeGateway, wait_for
from worker.protocol import FileToPlace
from worker.shim import processes


@pytest.fixture
def gateway() -> Iterator[FakeGateway]:
    with FakeGateway() as running:
        yield running


@pytest.fixture
def agent(gateway: FakeGateway) -> Iterator[AgentUnderTest]:
    running = AgentUnderTest().belongs_to(gateway)
    running.start(SECRET_KEY="control-plane-secret", DATABASE_URL="postgres://secret")
    yield running
    running.clean_up()


def test_launch_runs_to_its_end_and_reports_everything(
    gateway: FakeGateway, agent: AgentUnderTest
) -> None:
    """A task's states, exit code and output arrive, and the command is confirmed once."""
    command = gateway.launch("a1", ["sh", "-c", "echo out; echo err >&2; exit 3"])

    ended = gateway.wait_for_state("a1", "Exited")

    assert (ended.exit_code, ended.signal, ended.reason) == (3, None, "")
    assert gateway.states("a1") == ["Starting", "Running", "Exited"]
    assert wait_for(lambda: gateway.output("a1")) == b"out\n"
    assert wait_for(lambda: gateway.output("a1", "stderr")) == b"err\n"
    assert [done.command_id for done in gateway.done] == [command.command_id]


def test_launch_repeated_starts_nothing_twice(gateway: FakeGateway, agent: AgentUnderTest) -> None:
    """The same command sent three times is confirmed three times and runs once."""
    script = 'echo started >> "$TERRACE_JOB_DIR/ledger"; cat "$TERRACE_JOB_DIR/ledger"'
    command = gateway.launch("a1", ["sh", "-c", script])
    gateway.send(command)
    gateway.wait_for_state("a1", "Exited")
    gateway.send(command)

    wait_for(lambda: len(gateway.done) == 3)

    assert wait_for(lambda: gateway.output("a1")) == b"started\n"
    assert gateway.states("a1") == ["Starting", "Running", "Exited"]


def test_wrapper_gets_command_and_folder_of_its_image(gateway: FakeGateway) -> None:
    """A wrapper starts here, is told the image's folder, and may run the image's own program."""
    script = "echo $TERRACE_WORKING_DIR $# $@"
    config = f"[runtimes.image]\nkind = 'wrapper'\nargv = ['sh', '-c', '{script}', 'image']\n"
    running = AgentUnderTest(config=config).belongs_to(gateway)
    running.start()
    try:
        gateway.launch("a1", ["train", "--fast"], runtime="image", working_dir="/opt/inside")
        gateway.launch("a2", [], runtime="image")

        said = [wait_for(partial(gateway.output, attempt)) for attempt in ("a1", "a2")]
    finally:
        running.clean_up()

    assert said == [b"/opt/inside 2 train --fast\n", b"0\n"]


def test_environment_has_nothing_of_the_agent(gateway: FakeGateway, agent: AgentUnderTest) -> None:
    """A task sees what its Launch and Terrace give it and nothing else."""
    gateway.launch("a1", ["env", "-0"], environment={"RANK": "0", "PAYLOAD": "a b\n$(id)"})
    gateway.wait_for_state("a1", "Exited")

    pairs = wait_for(lambda: gateway.output("a1")).rstrip(b"\0").split(b"\0")

    seen = dict(pair.decode().split("=", 1) for pair in pairs)
    assert sorted(seen) == [
        "CUDA_VISIBLE_DEVICES",
        "HOME",
        "HOSTNAME",
        "LANG",
        "NVIDIA_VISIBLE_DEVICES",
        "PATH",
        "PAYLOAD",
        "PYTHONUNBUFFERED",
        "RANK",
        "SHELL",
        "TERRACE_ATTEMPT_ID",
        "TERRACE_FILES",
        "TERRACE_HOSTS_FILE",
        "TERRACE_JOB_DIR",
        "TERRACE_METRICS",
        "TERRACE_NODE",
        "TERRACE_OUTPUT",
        "TMPDIR",
    ]
    assert (seen["PAYLOAD"], seen["CUDA_VISIBLE_DEVICES"]) == ("a b\n$(id)", "")


def test_affinity_and_devices_are_applied(gateway: FakeGateway, agent: AgentUnderTest) -> None:
    """The running process may use just the CPU it was given and sees just its devices."""
    cpu = max(os.sched_getaffinity(0))
    gateway.launch(
        "a1",
        ["sh", "-c", "echo $CUDA_VISIBLE_DEVICES; exec sleep 60"],
        cpus=[cpu],
        devices=["GPU-a", "GPU-b"],
    )
    gateway.wait_for_state("a1", "Running")

    (pid,) = agent.processes_of("a1")

    assert os.sched_getaffinity(pid) == {cpu}
    assert wait_for(lambda: gateway.output("a1")) == b"GPU-a,GPU-b\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user cannot become another")
def test_task_of_root_agent_runs_as_nobody_special(
    gateway: FakeGateway, agent: AgentUnderTest
) -> None:
    """As root, each tenant gets an unprivileged user of its own that cannot gain rights."""
    script = "id -u; id -G; grep NoNewPrivs /proc/self/status; cat %s" % (agent.data / "node.json")
    gateway.launch("a1", ["sh", "-c", script], tenant="one")
    gateway.launch("a2", ["sh", "-c", script], tenant="two", job="job-2")
    gateway.wait_for_state("a1", "Exited")
    gateway.wait_for_state("a2", "Exited")

    assert wait_for(lambda: gateway.output("a1")) == b"200000\n200000\nNoNewPrivs:\t1\n"
    assert wait_for(lambda: gateway.output("a2")) == b"200001\n200001\nNoNewPrivs:\t1\n"
    assert b"Permission denied" in wait_for(lambda: gateway.output("a1", "stderr"))


WAIT_FOR_GO = 'while [ ! -e "$TERRACE_JOB_DIR/go" ]; do sleep 0.02; done; echo went; exit 5'


def let_go(agent: AgentUnderTest) -> None:
    (agent.data / "jobs" / "job-1" / "shared" / "go").touch()


def test_agent_killed_task_goes_on_and_is_adopted(
    gateway: FakeGateway, agent: AgentUnderTest
) -> None:
    """After kill -9 of the agent the same process runs on, and the next agent takes it over."""
    gateway.launch("a1", ["sh", "-c", WAIT_FOR_GO])
    gateway.wait_for_state("a1", "Running")
    before = main_process(agent, "a1")

    agent.kill()
    agent.start()

    assert main_process(agent, "a1") == before
    assert [(item.attempt, item.state) for item in gateway.hellos[-1].attempts] == [
        ("a1", "Running")
    ]
    let_go(agent)
    assert gateway.wait_for_state("a1", "Exited").exit_code == 5
    assert wait_for(lambda: gateway.output("a1")) == b"went\n"


def main_process(agent: AgentUnderTest, attempt: str) -> tuple[int, int | None]:
    record = agent.record(attempt, "shim.json")
    assert record is not None
    pid = record["task_pid"]
    return pid, processes.start_time(pid)


def test_exit_while_agent_is_dead_is_kept(gateway: FakeGateway, agent: AgentUnderTest) -> None:
    """A task that ends while no agent runs is reported with its code by the next one."""
    gateway.launch("a1", ["sh", "-c", WAIT_FOR_GO])
    gateway.wait_for_state("a1", "Running")

    agent.kill()
    let_go(agent)
    wait_for(lambda: agent.record("a1", "exit.json"))
    agent.start()

    assert gateway.wait_for_state("a1", "Exited").exit_code == 5
    assert wait_for(lambda: gateway.output("a1")) == b"went\n"
    # What was sent and not acknowledged before the kill may come again, never out of order.
    assert list(dict.fromkeys(gateway.states("a1"))) == ["Starting", "Running", "Exited"]


DEAF = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.environ.clear()
        os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)"])
    os._exit(0)
print("ready", flush=True)
time.sleep(600)
"""


def test_stop_leaves_nothing_of_a_deaf_daemon(gateway: FakeGateway, agent: AgentUnderTest) -> None:
    """A task that ignores SIGTERM and forked twice into a new session is gone after the grace."""
    gateway.launch("a1", ["python3", "-c", DEAF])
    wait_for(lambda: gateway.output("a1") == b"ready\n")
    record = agent.record("a1", "shim.json")
    assert record is not None
    family = processes.descendants(record["pid"])
    assert len(family) == 2

    gateway.stop("a1", grace_seconds=0.2, reason="Cancelled")

    ended = gateway.wait_for_state("a1", "Exited")
    assert (ended.signal, ended.reason) == (signal.SIGKILL, "Cancelled")
    assert [pid for pid, began in family.items() if processes.is_alive(pid, began)] == []


def test_stop_with_grace_lets_the_task_finish(gateway: FakeGateway, agent: AgentUnderTest) -> None:
    """SIGTERM comes first, and what the task does with it counts."""
    script = "trap 'echo saved; exit 7' TERM; echo ready; while :; do sleep 0.05; done"
    gateway.launch("a1", ["sh", "-c", script])
    wait_for(lambda: gateway.output("a1") == b"ready\n")

    gateway.stop("a1", grace_seconds=30, reason="Cancelled")

    ended = gateway.wait_for_state("a1", "Exited")
    assert (ended.exit_code, ended.reason) == (7, "Cancelled")
    assert gateway.states("a1") == ["Starting", "Running", "Stopping", "Exited"]
    assert wait_for(lambda: gateway.output("a1")) == b"ready\nsaved\n"


def test_stop_before_launch_keeps_it_from_starting(
    gateway: FakeGateway, agent: AgentUnderTest
) -> None:
    """A Launch that arrives after its Stop starts nothing."""
    gateway.stop("a1", grace_seconds=0)
    gateway.wait_for_state("a1", "Exited")
    gateway.launch("a1", ["sh", "-c", "echo ran"])

    wait_for(lambda: len(gateway.done) == 2)

    assert gateway.states("a1") == ["Exited"]
    assert not (agent.data / "jobs" / "job-1").exists()


def test_lower_epoch_is_refused_also_after_a_restart(
    gateway: FakeGateway, agent: AgentUnderTest
) -> None:
    """The highest epoch seen is kept on the disk; what an older scheduler orders is not done."""
    gateway.launch("a1", ["true"], epoch=7)
    gateway.wait_for_state("a1", "Exited")
    agent.kill()
    agent.start()

    gateway.launch("a2", ["true"], epoch=6)

    wait_for(lambda: len(gateway.done) == 2)
    assert gateway.hellos[-1].highest_epoch == 7
    assert gateway.done[-1].refused == "StaleEpoch"
    assert gateway.of("a2") == []


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user drops to nobody else")
def test_folders_below_a_barred_one(gateway: FakeGateway) -> None:
    """Data and Python below a folder such as /root serve all the same, and nothing else of it."""
    with tempfile.TemporaryDirectory(prefix="barred-") as barred:
        (Path(barred) / "secret").write_text("secret")
        (Path(barred) / "secret").chmod(0o644)
        agent = AgentUnderTest(parent=Path(barred)).belongs_to(gateway)
        try:
            agent.start()
            steps = ("pwd > $TERRACE_OUTPUT/x", "python -c 'print(1)'", f"ls {barred}")
            script = " && ".join((*steps, f"cat {barred}/secret"))
            gateway.launch("a1", ["sh", "-c", script], runtime="python")
            ended = gateway.wait_for_state("a1", "Exited")
            wait_for(lambda: gateway.output("a1", "stderr"))
            shown = gateway.output("a1")
        finally:
            agent.clean_up()

    assert shown == f"1\n{agent.data.name}\n".encode()
    assert ended.exit_code == 1


def placed(path: str, content: bytes, **fields: Any) -> FileToPlace:
    return FileToPlace(path, base64.b64encode(content).decode(), **fields)


def test_files_are_where_the_job_wants_them(gateway: FakeGateway, agent: AgentUnderTest) -> None:
    """Relative files lie in the working folder, root's home is the task's, others are mapped."""
    script = "cat a/b; cat ~/.ssh/id; stat -c %a ~/.ssh/id; cat $TERRACE_FILES/opt/x"
    files = [
        placed("a/b", b"work\n"),
        placed("/root/.ssh/id", b"key\n", mode=0o600),
        placed("/opt/x", b"mapped\n"),
    ]
    gateway.launch("a1", ["sh", "-c", script], files=files)

    running = gateway.wait_for_state("a1", "Running")

    wait_for(lambda: gateway.output("a1") == b"work\nkey\n600\nmapped\n")
    assert "/opt/x was placed at $TERRACE_FILES/opt/x" in running.message


def test_git_checkout(gateway: FakeGateway, agent: AgentUnderTest) -> None:
    """Code comes from a git address at a branch, tag or commit."""
    repository = agent.data / "repository"
    git = ["git", "-C", str(repository), "-c", "user.name=t", "-c", "user.email=t@example.org"]
    for step in (
        ["git", "init", "--quiet", "--initial-branch=main", str(repository)],
        [*git, "commit", "--quiet", "--allow-empty", "-m", "first"],
        [*git, "tag", "v1"],
        [*git, "commit", "--quiet", "--allow-empty", "-m", "second"],
    ):
        subprocess.run(step, check=True)
    script = ["git", "log", "--format=%s"]
    for attempt, revision in (("a1", "v1"), ("a2", "main"), ("a3", ""), ("a4", "no-such")):
        url = f"file://{repository}"
        gateway.launch(attempt, script, git_url=url, git_revision=revision, job=attempt)

    ended = [gateway.wait_for_state(attempt, "Exited") for attempt in ("a1", "a2", "a3", "a4")]

    assert wait_for(lambda: gateway.output("a1")) == b"first\n"
    assert wait_for(lambda: gateway.output("a2")) == b"second\nfirst\n"
    assert wait_for(lambda: gateway.output("a3")) == b"second\nfirst\n"
    assert ended[3].message == f"git_revision 'no-such' is not in file://{repository}"


@pytest.mark.skipif(os.geteuid() != 0, reason="control groups are root's here")
def test_memory_limit(gateway: FakeGateway, agent: AgentUnderTest) -> None:
    """A task that wants more than its memory is killed, and that is the reason."""
    gateway.launch("a1", ["python3", "-c", "bytearray(600 << 20)"], memory_bytes=100 << 20)

    ended = gateway.wait_for_state("a1", "Exited")

    assert (ended.is_oom, ended.reason, ended.signal) == (True, "OutOfMemory", signal.SIGKILL)
