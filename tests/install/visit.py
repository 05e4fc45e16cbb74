"""One visit of a newcomer: `make up`, look at the sign-in page, Ctrl-C, start again, Ctrl-C.

Runs inside the minimal Debian with its bare Python: standard library only. Arguments: who visits,
the checkout, and a neighbour's address, which must be neither taken nor disturbed.
"""

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

PATIENCE_SECONDS = 600
SECOND_START_SECONDS = 10


def main(who: str, checkout: Path, neighbour: str | None = None) -> None:
    """Start twice, and check what is promised."""
    first = start(checkout)
    said, address, seconds = wait_until_ready(first)
    print(f"{who}: first start {seconds:.1f} s at {address}")
    check("Sign in as admin with the password" in said, f"no first login in:\n{said}")
    check("Sign in" in read(f"{address}/accounts/login/"), "the sign-in page")
    if neighbour is not None:
        check(address != neighbour, "an address of one's own")
        check("Sign in" in read(f"{neighbour}/accounts/login/"), "the neighbour's sign-in page")
    end(first, checkout)

    second = start(checkout)
    said, address, seconds = wait_until_ready(second)
    # Said, not judged: what else the machine does is not this test's business.
    print(f"{who}: second start {seconds:.1f} s at {address}; the aim is {SECOND_START_SECONDS} s")
    check("Sign in as admin" not in said, "the password is shown once")
    end(second, checkout)


def start(checkout: Path) -> subprocess.Popen[str]:
    """Run `make up` as a terminal would, in a process group of its own."""
    return subprocess.Popen(
        ["make", "up"],
        cwd=checkout,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def wait_until_ready(process: subprocess.Popen[str]) -> tuple[str, str, float]:
    """Return what it said, the address, and how long it took."""
    begun = time.monotonic()
    said = ""
    address = ""
    assert process.stdout is not None
    for line in process.stdout:
        said += line
        print(f"    {line}", end="", flush=True)
        found = re.match(r"Terrace runs at (\S+) ", line)
        if found:
            address = found[1]
        if line.startswith("Logs: "):
            return said, address, time.monotonic() - begun
        check(time.monotonic() - begun < PATIENCE_SECONDS, f"ready in time:\n{said}")
    raise SystemExit(f"FAILED: make up ended:\n{said}")


def end(process: subprocess.Popen[str], checkout: Path) -> None:
    """Press Ctrl-C, which a terminal sends to the whole group, and look for what is left."""
    os.killpg(process.pid, signal.SIGINT)
    rest, _ = process.communicate(timeout=PATIENCE_SECONDS)
    check("Terrace has ended." in rest, f"an orderly end:\n{rest}")
    left = [command for command in commands() if f"{checkout}/.terrace" in command]
    check(not left, f"no process left: {left}")


def read(url: str) -> str:
    """Fetch a page."""
    with urllib.request.urlopen(url, timeout=30) as reply:
        return str(reply.read().decode())


def commands() -> list[str]:
    """Return the command lines of all processes."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


def check(holds: bool, what: str) -> None:
    """Stop if it does not hold."""
    if not holds:
        raise SystemExit(f"FAILED: {what}")


main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
