"""`manage.py up` as a person meets it: real processes, in a folder of their own."""

import os
import signal
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.running import PATIENCE_SECONDS, Up, data_folder, processes_of, remove, status_of

MAY_READ_ALL = 1 << 2  # CAP_DAC_READ_SEARCH, kept where only root may enter the checkout


@pytest.fixture
def data() -> Iterator[Path]:
    folder = data_folder()
    yield folder
    remove(folder)


@pytest.fixture(scope="module")
def running() -> Iterator[Up]:
    """One that runs for all tests that only look at it."""
    folder = data_folder()
    up = Up(folder)
    up.address()
    yield up
    assert up.end() == 0
    remove(folder)


@pytest.fixture
def awkward_data() -> Iterator[Path]:
    """A folder with spaces, quotes and a comma, whose path has more than 150 characters."""
    folder = data_folder('it\'s a "long", long way ' + "x" * 120)
    yield folder
    remove(folder)


def wait_for_status(url: str) -> int:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (status := status_of(url)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return status


def test_up_runs_ends_and_keeps_its_data(data: Path) -> None:
    """Ctrl-C leaves no process, and the next start goes on with the same login."""
    first = Up(data)
    address = first.address()
    password = first.wait_until_it_says(r"Sign in as admin with the password (\S+)")[1]

    assert status_of(f"{address}/accounts/login/") == 200
    assert first.end() == 0
    assert processes_of(data) == []

    second = Up(data)
    second.address()

    assert "Sign in as" not in second.said()
    assert (data / "login" / "first-login").read_text() == f"admin\n{password}\n"
    assert second.end() == 0
    assert processes_of(data) == []


def test_up_cleans_what_a_killed_supervisor_left(data: Path) -> None:
    """After kill -9 the next start ends the orphans and runs alone."""
    first = Up(data)
    first.address()
    orphan = first.pid_of("web")
    first.kill()
    assert processes_of(data) != []

    second = Up(data)
    address = second.address()

    assert "postgres" in second.wait_until_it_says(r"Ended what an earlier start had left: (.*)")[1]
    assert not Path(f"/proc/{orphan}").exists()
    assert status_of(f"{address}/accounts/login/") == 200
    assert second.end() == 0
    assert processes_of(data) == []


def test_up_starts_a_killed_web_and_postgres_again(data: Path) -> None:
    """A crash of a child costs seconds and is said."""
    up = Up(data)
    page = f"{up.address()}/accounts/login/"

    for name in ("web", "postgres"):
        os.kill(up.pid_of(name), signal.SIGKILL)
        up.wait_until_it_says(rf"{name} ended with signal 9; starting it again in 0\.5 s")
        deadline = time.monotonic() + PATIENCE_SECONDS
        while status_of(page) != 200 and time.monotonic() < deadline:
            time.sleep(0.05)

        assert status_of(page) == 200

    assert up.end() == 0
    assert processes_of(data) == []


def test_second_up_on_the_same_data_is_refused(running: Up) -> None:
    """Two supervisors never share a database; the second says where the first is."""
    address = running.address()

    second = Up(running.data)
    second.wait_until_it_says(rf"Terrace already runs at {address} on .*End it there")

    assert second.process.wait(timeout=PATIENCE_SECONDS) == 1
    assert status_of(f"{address}/accounts/login/") == 200


def test_up_works_in_an_awkward_place(awkward_data: Path) -> None:
    """A long path with spaces, an unknown LANG and a taken port hinder nothing."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        up = Up(awkward_data, TERRACE_PORT=str(port), LANG="tlh_QO.utf8", LC_ALL="xx_YY")
        address = up.address()

        said = up.wait_until_it_says(r"Port (\d+) is taken; web listens on (\d+)")
        assert said[1] == str(port)
        assert address.endswith(f":{said[2]}")
        assert status_of(f"{address}/accounts/login/") == 200

    assert up.end() == 0
    assert processes_of(awkward_data) == []


def test_secrets_are_closed_to_others(running: Up) -> None:
    """No file with a password or key may be read by another user."""
    secret = ["services.json", "secret-key", "postgres/passwords", "redis/redis.conf"]
    secret += ["login/first-login"]

    modes = {name: stat.S_IMODE((running.data / name).stat().st_mode) for name in secret}

    assert modes == dict.fromkeys(secret, 0o600)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can drop to another user")
@pytest.mark.parametrize("name", ["postgres", "redis", "web", "gateway", "worker", "loops", "beat"])
def test_servers_of_root_run_as_somebody_else(running: Up, name: str) -> None:
    """No server is root, nor can become it."""
    status = Path(f"/proc/{running.pid_of(name)}/status").read_text()
    lines = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)

    assert "0" not in lines["Uid"].split()
    assert "0" not in lines["Gid"].split()
    assert lines["NoNewPrivs"] == "1"
    assert int(lines["CapEff"], 16) & ~MAY_READ_ALL == 0
