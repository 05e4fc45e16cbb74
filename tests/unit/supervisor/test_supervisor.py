"""The supervisor keeps children running and ends them in order."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.supervisor import record, supervisor
from controlplane.supervisor.errors import StartError
from controlplane.supervisor.ports import is_free, listen, next_free
from controlplane.supervisor.programs import Program
from controlplane.supervisor.supervisor import Supervisor, trim

ENDS_AND_SAYS = "trap 'echo {name} >>{order}; exit 0' TERM; echo ready >>{ready}; sleep 600 & wait"


class Watched:
    """A supervisor with what it said."""

    def __init__(self, folder: Path) -> None:
        self.said: list[str] = []
        self.folder = folder
        self.supervisor = Supervisor(folder, folder, self.said.append)

    def shell(self, name: str, script: str, **changes: object) -> subprocess.Popen[bytes]:
        return self.supervisor.start(
            Program(
                name=name,
                command=("/bin/sh", "-c", script),
                environment={"PATH": "/usr/bin:/bin"},
                account=None,
                folder=self.folder,
                **changes,  # type: ignore[arg-type]  # the fields of Program
            )
        )

    def watch_until(self, words: str) -> str:
        while not any(words in sentence for sentence in self.said):
            self.supervisor.watch()
            self.supervisor.wait(0.05)
        return next(sentence for sentence in self.said if words in sentence)


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    found = Watched(tmp_path)
    with found.supervisor.signals():
        yield found
        found.supervisor.end()


def wait_for(path: Path, lines: int) -> list[str]:
    found: list[str] = []
    while len(found) < lines:
        found = path.read_text().splitlines() if path.exists() else []
    return found


def test_crashed_child_is_started_again(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The end is said with its cause and log, and the next try is made."""
    monkeypatch.setattr(supervisor, "FIRST_PAUSE_SECONDS", 0.01)
    count = tmp_path / "count"
    watched.shell("web", f"echo x >>{count}; exit 3")

    sentence = watched.watch_until("web ended with exit code 3; starting it again in 0.02 s")

    assert str(tmp_path / "web.log") in sentence
    assert len(wait_for(count, 2)) >= 2


def test_pause_grows_to_a_limit(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that cannot start does not eat the machine."""
    monkeypatch.setattr(supervisor, "FIRST_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(supervisor, "LONGEST_PAUSE_SECONDS", 0.004)
    watched.shell("web", "exit 1")

    watched.watch_until("again in 0.004 s")

    pauses = [sentence.split(" in ")[1].split(" s")[0] for sentence in watched.said]
    assert pauses[:3] == ["0.001", "0.002", "0.004"]


def test_death_of_a_master_takes_its_workers_along(watched: Watched, tmp_path: Path) -> None:
    """What a killed child left must not work beside its successor."""
    pids = tmp_path / "pids"
    process = watched.shell("worker", f"sleep 600 & echo $! >>{pids}; wait")
    (worker,) = wait_for(pids, 1)

    process.kill()
    watched.watch_until("worker ended with signal 9")

    alive = Path(f"/proc/{worker}/cwd")
    for _ in range(200):  # the signal was sent, and is delivered soon
        if alive.exists():
            watched.supervisor.wait(0.05)
    assert not alive.exists()


def test_children_end_in_order(watched: Watched, tmp_path: Path) -> None:
    """Loops before the agent, the agent before the gateway, the database last."""
    order, ready = tmp_path / "order", tmp_path / "ready"
    names = ("postgres", "gateway", "agent", "loops")
    for name in names:
        watched.shell(name, ENDS_AND_SAYS.format(name=name, order=order, ready=ready))
    wait_for(ready, len(names))

    watched.supervisor.end()

    assert order.read_text().split() == ["loops", "agent", "gateway", "postgres"]
    assert record.load(tmp_path) == []


def test_stubborn_child_is_killed_after_its_grace(watched: Watched, tmp_path: Path) -> None:
    """One that ignores the signal does not hold up the others for long."""
    ready = tmp_path / "ready"
    process = watched.shell(
        "web", f"trap '' TERM; echo >{ready}; while :; do sleep 600; done", grace_seconds=0.1
    )
    wait_for(ready, 1)

    watched.supervisor.end()

    assert process.returncode == -signal.SIGKILL


def test_record_names_the_living(watched: Watched, tmp_path: Path) -> None:
    """The next supervisor learns who runs and how to end it."""
    process = watched.shell("agent", "sleep 600", leftover_stop=signal.SIGHUP)

    (entry,) = record.load(tmp_path)

    assert (entry.name, entry.identity.pid, entry.stop) == ("agent", process.pid, signal.SIGHUP)


def test_long_log_is_moved_aside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its writer goes on in the same file, which begins anew."""
    monkeypatch.setattr(supervisor, "LOG_BYTES", 10)
    log = tmp_path / "web.log"
    with log.open("ab") as writer:
        writer.write(b"0123456789ab")
        writer.flush()

        trim(log)
        writer.write(b"next")

    assert (tmp_path / "web.log.1").read_bytes() == b"0123456789ab"
    assert log.read_bytes() == b"next"


def test_short_log_is_left_alone(tmp_path: Path) -> None:
    """Nothing moves before it must."""
    log = tmp_path / "web.log"
    log.write_text("short")

    trim(log)

    assert [path.name for path in tmp_path.iterdir()] == ["web.log"]


def test_taken_port_is_passed_over() -> None:
    """The next free one is found, and a second caller does not get the same."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        assert not is_free(port)
        found = next_free(port)
        assert found > port
        assert next_free(port, besides=frozenset({found})) > found


def test_listening_socket_passes_over_a_taken_port() -> None:
    """Two that want one port get two, and keep them."""
    with listen(20_000) as first, listen(first.getsockname()[1]) as second:
        ports = [each.getsockname()[1] for each in (first, second)]

        assert ports[1] > ports[0]
        assert not any(is_free(port) for port in ports)


def test_foreign_address_is_refused() -> None:
    """An address that is not this machine's names the variable."""
    with pytest.raises(StartError, match=r"Cannot listen on 192\.0\.2\.1: .*TERRACE_BIND"):
        listen(20_000, "192.0.2.1")


def test_child_answers_on_the_socket_it_inherits(watched: Watched, tmp_path: Path) -> None:
    """A connection made before the server is up is answered once it is."""
    serve = "import socket, sys; s = socket.socket(fileno=int(sys.argv[1]))\n"
    serve += "c, _ = s.accept(); c.sendall(b'here')"
    with listen(20_000) as listening, socket.create_connection(listening.getsockname()) as client:
        watched.supervisor.start(
            Program(
                name="web",
                command=(sys.executable, "-c", serve, str(listening.fileno())),
                environment={},
                account=None,
                folder=tmp_path,
                sockets=(listening.fileno(),),
            )
        )

        assert client.recv(16) == b"here"


def test_child_that_ends_for_ever_is_hurried_and_started_again(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whom somebody else asked to end is told at once, killed after its grace, and back soon."""
    monkeypatch.setattr(supervisor, "FIRST_PAUSE_SECONDS", 0.01)
    ready, asked = tmp_path / "ready", tmp_path / "asked"
    script = f"trap 'echo >{tmp_path}/told' INT; echo >>{ready}; while :; do sleep 600; done"
    stop = {"stop": signal.SIGINT, "grace_seconds": 0.1}
    watched.shell("postgres", script, is_ending=asked.exists, **stop)
    wait_for(ready, 1)

    asked.touch()
    watched.watch_until("Somebody asked postgres to end")
    asked.unlink()
    watched.watch_until("postgres ended with signal 9")
    while len(record.load(tmp_path)) == 0:
        watched.supervisor.watch()

    assert len(wait_for(ready, 2)) == 2
