"""Ends that come while nobody looks: what the task did by itself is what is reported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.factories.ears import Ears
from worker.agent.attempts import new_attempt, read_launch, store_launch
from worker.agent.config import AgentConfig, Runtime, RuntimeKind
from worker.agent.folders import NodeFolders
from worker.agent.host import HostMachine
from worker.agent.identity import Identity
from worker.agent.preparing import Preparer
from worker.agent.users import TaskUsers
from worker.protocol import Launch
from worker.shim import linux, records

ENDED = {"at": 2.0, "exit_code": 0, "signal": None, "is_oom": False, "reason": "", "message": ""}


async def test_end_between_two_looks_of_a_new_agent_stands(tmp_path: Path) -> None:
    """A shim that records the end just before it gives its lock back was not lost."""
    folders = NodeFolders(tmp_path / "data", tmp_path / "jobs")
    folders.data.mkdir()
    folders.create()
    machine = _machine(folders)
    launch = Launch(
        command_id=1, epoch=1, attempt="a", job="j", task="j-m-0", tenant="t", argv=["true"],
        runtime="host", environment={},
    )  # fmt: skip
    store_launch(new_attempt(folders.attempt("a"), launch, metrics=None), launch)
    attempt = new_attempt(folders.attempt("a"), read_launch(folders.attempt("a")), metrics=None)
    attempt.write(records.SHIM, {"boot_id": linux.boot_id(), "pid": 1, "started_at": 1.0})
    attempt.write(records.EXIT, ENDED)
    ears = Ears()

    machine.adopt(attempt, ears)

    said = [(one.state, one.exit_code, one.reason) for one in ears.reports]
    assert said == [("Running", None, ""), ("Exited", 0, "")]
    assert attempt.read(records.EXIT) == ENDED
    await machine.close()


def _machine(folders: NodeFolders) -> HostMachine:
    host = Runtime("host", RuntimeKind.INTERPRETER, sys.executable)
    config = AgentConfig(may_drop_privileges=False, runtimes={"host": host})
    identity = Identity(node="n", server="http://127.0.0.1:1", credential="c")
    preparer = Preparer(config, folders, TaskUsers(config, folders.data), identity, may_mount=False)
    return HostMachine(config=config, folders=folders, preparer=preparer)


TICK_AFTER_THE_END = """
import json, os, sys
from types import SimpleNamespace
from worker.shim import cgroups
from worker.shim.supervisor import Supervisor
shim = Supervisor(SimpleNamespace(lease_file="/nowhere", folder=sys.argv[1]), -1)
shim.group = cgroups.Group([], [])
shim.main_pid = os.fork()
if shim.main_pid == 0:
    os._exit(0)
os.waitid(os.P_PID, shim.main_pid, os.WEXITED | os.WNOWAIT)
shim._tick(0.0)
print(json.dumps([shim.main_status, shim.reason, shim.kill_at]))
"""


def test_task_that_ended_before_its_lapse_was_seen_has_not_lapsed(tmp_path: Path) -> None:
    """After a pause the supervisor looks for the task's own end before it looks at the lease."""
    told = subprocess.run(
        [sys.executable, "-c", TICK_AFTER_THE_END, str(tmp_path)],
        check=True,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3])},
    )

    assert json.loads(told.stdout) == [0, "", None]
