"""Processes are recognised by more than their pid."""

import dataclasses
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.supervisor import record
from controlplane.supervisor.processes import Account, Identity, command_as, spawn, tail


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def identity_of(process: subprocess.Popen[bytes]) -> Identity:
    found = Identity.of(process.pid)
    assert found is not None
    return found


def test_identity_lives_as_long_as_its_process(sleeper: subprocess.Popen[bytes]) -> None:
    """An ended process is nobody, even before it is reaped."""
    identity = identity_of(sleeper)
    assert identity.is_alive()

    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)

    assert not identity.is_alive()
    assert Identity.of(sleeper.pid) is None


@pytest.mark.parametrize(
    "change", [{"start_ticks": 1}, {"boot_id": "another boot"}], ids=["reused pid", "other boot"]
)
def test_foreign_process_is_never_signalled(
    sleeper: subprocess.Popen[bytes], change: dict[str, int | str]
) -> None:
    """A pid that was reused, by this boot or the next, is left alone."""
    foreign = dataclasses.replace(identity_of(sleeper), **change)  # type: ignore[arg-type]  # either

    assert foreign.send(signal.SIGKILL) is False
    assert sleeper.poll() is None


def test_stubborn_process_is_killed_after_its_grace() -> None:
    """A process that ignores the polite signal does not hold up the end."""
    process = subprocess.Popen(
        ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 600; done"],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    identity = identity_of(process)

    identity.send(signal.SIGTERM)
    identity.outlast(grace_seconds=0.1)

    assert process.wait() == -signal.SIGKILL
    os.killpg(process.pid, signal.SIGKILL)
    process.stdout.close()


def test_identity_survives_a_name_with_brackets(tmp_path: Path) -> None:
    """A program may call itself anything; the start time is still found."""
    program = tmp_path / "a) S 1 (b"
    program.symlink_to("/bin/sleep")
    process = subprocess.Popen([program, "600"])

    identity = identity_of(process)

    assert identity.start_ticks > 1
    process.kill()
    process.wait()


def test_command_stays_as_it_is_without_an_account() -> None:
    """Who is not root has nothing to drop."""
    assert command_as(["postgres", "-D", "x"], None) == ["postgres", "-D", "x"]


@pytest.mark.parametrize(
    ("may_read_all", "kept"), [(False, "-all"), (True, "-all,+dac_read_search")]
)
def test_account_keeps_no_right_but_reading(may_read_all: bool, kept: str) -> None:
    """All capabilities are dropped, but the right to read where that is needed."""
    account = Account(uid=12, gid=34, name="ann", may_read_all=may_read_all)

    words = command_as(["redis-server"], account)

    assert words[0] == "setpriv"
    assert {"--reuid=12", "--regid=34", "--clear-groups", "--no-new-privs"} <= set(words)
    assert {f"--ambient-caps={kept}", f"--bounding-set={kept}", f"--inh-caps={kept}"} <= set(words)
    assert words[-2:] == ["--", "redis-server"]


def test_spawned_child_has_the_given_environment_only(tmp_path: Path) -> None:
    """Nothing of the supervisor's environment leaks into a child."""
    log = tmp_path / "child.log"

    process = spawn(["/usr/bin/env"], log=log, environment={"A": "1"}, folder=tmp_path)

    assert process.wait() == 0
    assert log.read_text() == "A=1\n"
    assert log.stat().st_mode & 0o777 == 0o600


def test_tail_of_a_missing_log_is_empty(tmp_path: Path) -> None:
    """An error message can always quote a log."""
    assert tail(tmp_path / "none") == ""


def test_record_survives_damage(tmp_path: Path) -> None:
    """A half-written record counts as none: nobody is signalled by it."""
    (tmp_path / record.FILE_NAME).write_text('[{"name": "web", "ident')

    assert record.load(tmp_path) == []


def test_leftovers_are_ended_and_strangers_are_not(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    """Only the very processes of the record are ended."""
    stranger = dataclasses.replace(identity_of(sleeper), start_ticks=1)
    other = subprocess.Popen(["sleep", "600"])
    record.save(
        tmp_path,
        [
            record.Entry("web", identity_of(other), signal.SIGTERM),
            record.Entry("redis", stranger, signal.SIGTERM),
        ],
    )

    assert record.end_leftovers(tmp_path) == ["web"]
    assert other.wait() == -signal.SIGTERM
    assert sleeper.poll() is None
