"""What the agent makes of a launch before it starts it."""

from __future__ import annotations

import base64

from worker.agent.preparing import with_addresses
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
