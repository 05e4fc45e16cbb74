"""`deploy/setup.sh` makes a `.venv` that is whole, whatever ended it half-way before.

The real script runs in a checkout of its own whose lock file names nothing, or names a pipe that
keeps pip waiting for as long as a test wants.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent.parent
PATIENCE_SECONDS = 300.0


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Path]:
    """A checkout with the script and empty lock files; what still runs in it ends with the test."""
    (tmp_path / "deploy").mkdir()
    (tmp_path / "requirements").mkdir()
    shutil.copy(CHECKOUT / "deploy" / "setup.sh", tmp_path / "deploy")
    for kind in ("run", "dev"):
        (tmp_path / "requirements" / f"{kind}.txt").write_text("")
    yield tmp_path
    for pid in pips_of(tmp_path):
        os.kill(pid, signal.SIGKILL)


def begin(checkout: Path, kind: str = "run") -> subprocess.Popen[str]:
    """Start the script as `make` does."""
    return subprocess.Popen(
        ["sh", "deploy/setup.sh", kind],
        cwd=checkout,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def said_by(process: subprocess.Popen[str]) -> str:
    """Wait for the end, which must be a good one, and return what was printed."""
    said, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, said
    return said


def pips_of(checkout: Path) -> list[int]:
    """Return the pids of the pips that run in this checkout."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
            place = (folder / "cwd").readlink()
        except OSError:
            continue
        if place == checkout and b"\0pip\0install\0" in command:
            found.append(int(folder.name))
    return found


def make_pip_wait(checkout: Path) -> Path:
    """Let the lock file name a pipe that nobody writes to."""
    pipe = checkout / "requirements" / "endless.txt"
    os.mkfifo(pipe)
    (checkout / "requirements" / "run.txt").write_text("-r endless.txt\n")
    return pipe


def wait_for_pip(checkout: Path) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not pips_of(checkout):
        assert time.monotonic() < deadline, "pip never began"
        time.sleep(0.05)


def test_setup_begins_again_after_a_killed_installation(checkout: Path) -> None:
    """What pip left half is gone, and the third run has nothing to do."""
    pipe = make_pip_wait(checkout)
    first = begin(checkout)
    wait_for_pip(checkout)
    half = next((checkout / ".venv" / "lib").glob("python3*/site-packages")) / "half.dist-info"
    half.mkdir()
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate(timeout=PATIENCE_SECONDS)

    pipe.unlink()
    pipe.write_text("")
    second = said_by(begin(checkout))
    third = said_by(begin(checkout))

    assert second.startswith("The installation of .venv was interrupted; beginning again\n")
    assert not half.exists()
    assert third == ""


def test_setup_begins_again_after_a_killed_update(checkout: Path) -> None:
    """An older, whole installation does not hide that its update was interrupted."""
    said_by(begin(checkout))
    pipe = make_pip_wait(checkout)
    update = begin(checkout)
    wait_for_pip(checkout)
    os.killpg(update.pid, signal.SIGKILL)
    update.communicate(timeout=PATIENCE_SECONDS)

    pipe.unlink()
    pipe.write_text("")

    assert "was interrupted; beginning again" in said_by(begin(checkout))


def test_setups_of_one_checkout_take_turns(checkout: Path) -> None:
    """A second one waits for the first instead of making its .venv anew under it."""
    pipe = make_pip_wait(checkout)
    first = begin(checkout)
    wait_for_pip(checkout)
    second = begin(checkout)
    assert second.stdout is not None
    begun = second.stdout.readline()

    with pipe.open("w"):
        pass  # an empty file for pip, which may go on

    assert begun == "Waiting for another make that sets this checkout up\n"
    assert "interrupted" not in said_by(first)
    assert said_by(second) == ""


def test_setup_makes_a_venv_of_another_python_anew(checkout: Path) -> None:
    """After Python's version changed below it, a .venv with a right stamp is still no use."""
    said_by(begin(checkout))
    library = next((checkout / ".venv" / "lib").glob("python3*"))
    library.rename(library.with_name("python3.0"))

    assert "Making .venv with Python" in said_by(begin(checkout))
