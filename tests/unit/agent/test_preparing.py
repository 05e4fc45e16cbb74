"""What the agent makes of a launch before it starts it."""

from __future__ import annotations

import base64
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from worker.agent.config import AgentConfig, Runtime, RuntimeKind
from worker.agent.folders import NodeFolders
from worker.agent.identity import Identity
from worker.agent.preparing import Preparer, with_addresses
from worker.agent.users import TaskUsers
from worker.protocol import FileToPlace, Launch


def test_addresses_stand_for_names_where_no_hosts_file_can_be_shown() -> None:
    """Full names of tasks become addresses, and nothing that only looks like one is touched."""
    name, other = "j-w-1.j", "j-w-10.j"
    hosts = {name: "10.0.0.1", other: "10.0.0.2", "j-w-1": "10.0.0.1"}
    binary = FileToPlace(path="model", content=base64.b64encode(b"\xff" + name.encode()).decode())
    text = FileToPlace(
        path="w.host", content=base64.b64encode(f"{name}\n{other}".encode()).decode()
    )
    launch = Launch(
        command_id=1,
        epoch=1,
        attempt="a",
        job="j",
        task="j-w-1",
        tenant="t",
        argv=["run", f"--master=tcp://{name}:22", f"{name}.org", f"my-{name}"],
        runtime="",
        environment={"HOSTS": f"{name},{other}:2222", "NAME": "j-w-1"},
        files=[binary, text],
        hosts=hosts,
    )

    changed = with_addresses(launch)

    assert changed.argv == ["run", "--master=tcp://10.0.0.1:22", f"{name}.org", f"my-{name}"]
    assert changed.environment == {"HOSTS": "10.0.0.1,10.0.0.2:2222", "NAME": "j-w-1"}
    assert changed.files[0] == binary
    assert base64.b64decode(changed.files[1].content) == b"10.0.0.1\n10.0.0.2"


def test_tasks_of_one_job_may_be_prepared_at_once(tmp_path: Path) -> None:
    """Whoever comes first makes the folder that they share; nobody fails over it."""
    folders = NodeFolders(tmp_path, tmp_path / "jobs")
    folders.create()
    runtimes = {"host": Runtime("host", RuntimeKind.HOST)}
    config = AgentConfig(may_drop_privileges=False, runtimes=runtimes)
    identity = Identity(node="n", server="http://127.0.0.1:1", credential="c")
    preparer = Preparer(config, folders, TaskUsers(config, folders.data), identity, may_mount=False)
    together = threading.Barrier(8)

    def prepare(number: int) -> str:
        job, task = divmod(number, 8)
        together.wait(60)
        launch = Launch(
            command_id=1,
            epoch=1,
            attempt=f"a-{number}",
            job=f"j-{job}",
            task=f"j-w-{task}",
            tenant="t",
            argv=["true"],
            runtime="host",
            environment={},
        )
        return preparer.prepare(launch, {}).spec.attempt

    with ThreadPoolExecutor(8) as threads:
        prepared = list(threads.map(prepare, range(8 * 60)))

    assert prepared == [f"a-{number}" for number in range(8 * 60)]
