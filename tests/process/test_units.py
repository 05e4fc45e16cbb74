"""The command lines of the systemd units, run as they stand in production's environment."""

import os
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest

from controlplane.supervisor import programs
from controlplane.supervisor.ports import any_free
from controlplane.supervisor.processes import tail
from tests.embedded import EmbeddedServices

CHECKOUT = Path(__file__).resolve().parent.parent.parent
UNITS = CHECKOUT / "deploy" / "systemd"
NAMES = ("web", "gateway", "worker", "loops", "beat")
PATIENCE_SECONDS = 180.0  # a busy machine is slow, not wrong
HELD = "SELECT count(*) FROM scheduling_lease WHERE expires_at > clock_timestamp()"
# What systemd takes for success; uvicorn ends by the signal that it was asked with.
GOOD = {0, -signal.SIGTERM}
LOOPS = 3  # the scheduler of the one cluster, the relay, reconcile


def line_of(unit: str, key: str) -> str:
    """Return the value of one line of a unit, with systemd's `%%` and our places resolved."""
    text = (UNITS / f"terrace-{unit}.service").read_text()
    found = re.search(rf"^{key}=(.*)$", text, re.MULTILINE)
    assert found is not None, f"{unit} has no {key}"
    return found[1].replace("%%", "%")


@dataclass
class Installation:
    """A PostgreSQL and a Redis as production would bring them, and the units' processes."""

    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="terrace-units-")))
    services: EmbeddedServices = field(default_factory=lambda: EmbeddedServices({}))
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    ports: dict[str, int] = field(
        default_factory=lambda: {"web": any_free(), "gateway": any_free()}
    )

    def __post_init__(self) -> None:
        """Say what `/etc/terrace/environment` would say."""
        given = self.services.settings()
        self.environment = {
            "PATH": os.environ["PATH"],
            "DATABASE_URL": given["DATABASE_URL"],
            "REDIS_URL": given["REDIS_URL"],
            "SECRET_KEY": secrets.token_urlsafe(48),
            "PUBLIC_URL": "https://terrace.example",
            "TERRACE_GATEWAY_URL": "https://gateway.terrace.example",
            "TERRACE_BEHIND_PROXY": "yes",
            **self.resolve_environment(),
        }

    def resolve_environment(self) -> dict[str, str]:
        """Return what the units themselves set."""
        pairs = shlex.split(self.resolve(line_of("web", "Environment")))
        return dict(pair.split("=", 1) for pair in pairs)

    def resolve(self, line: str) -> str:
        """Put this test's places for those of a machine."""
        return (
            line.replace("/srv/terrace/.venv/bin/python", shlex.quote(sys.executable))
            .replace("/var/lib/terrace", shlex.quote(str(self.folder)))
            .replace("--port=8000", f"--port={self.ports['web']}")
            .replace("--port=8001", f"--port={self.ports['gateway']}")
        )

    def manage(self, *arguments: str, **environment: str) -> None:
        done = subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=CHECKOUT,
            env={**self.environment, **environment},
            capture_output=True,
            check=False,
            text=True,
        )
        assert done.returncode == 0, done.stderr

    def start(self, unit: str) -> None:
        with self.log(unit).open("wb") as log:
            self.running[unit] = subprocess.Popen(
                shlex.split(self.resolve(line_of(unit, "ExecStart"))),
                cwd=CHECKOUT,
                env=self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def log(self, unit: str) -> Path:
        return self.folder / f"{unit}.log"

    def held_leases(self) -> int:
        with psycopg.connect(self.environment["DATABASE_URL"]) as connection:
            row = connection.execute(HELD).fetchone()
        return int(row[0]) if row else 0

    def get(self, unit: str, path: str, host: str) -> tuple[int, str]:
        """Ask as the proxy would; 0 while nobody answers."""
        url = f"http://127.0.0.1:{self.ports[unit]}{path}"
        request = urllib.request.Request(url, headers={"Host": host, "X-Forwarded-Proto": "https"})
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=10) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode(errors="replace")
        except OSError:
            return 0, ""

    def said(self) -> str:
        return "\n".join(f"== {name}\n{tail(self.log(name), 30)}" for name in self.running)

    def end(self) -> dict[str, int]:
        """Stop as systemd does: the main process first; return each one's exit status."""
        for process in self.running.values():
            process.send_signal(signal.SIGTERM)
        statuses = {}
        for name, process in self.running.items():
            statuses[name] = process.wait(timeout=PATIENCE_SECONDS)
        return statuses


@pytest.fixture(scope="module")
def installation() -> Iterator[Installation]:
    """All units at work; told to stop, each ends with success and no lease is left."""
    made = Installation()
    made.services.start()
    try:
        made.manage("prepare")
        made.manage("collectstatic", "--noinput", TERRACE_COLLECT="1")
        for name in NAMES:
            made.start(name)
        yield made
        ended = made.end()
        assert {name for name, status in ended.items() if status not in GOOD} == set(), made.said()
        assert made.held_leases() == 0
    finally:
        for process in made.running.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        made.services.stop()
        shutil.rmtree(made.folder, ignore_errors=True)


def wait_until(installation: Installation, what: str, condition: object) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    assert callable(condition)
    while not condition():
        ended = {name: p.returncode for name, p in installation.running.items() if p.poll()}
        assert not ended, f"{ended}\n{installation.said()}"
        assert time.monotonic() < deadline, f"never: {what}\n{installation.said()}"
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("unit", "host"), [("web", "terrace.example"), ("gateway", "gateway.terrace.example")]
)
def test_units_become_ready(installation: Installation, unit: str, host: str) -> None:
    """Web and gateway answer that they reach the database."""
    wait_until(
        installation,
        f"{unit} is ready",
        lambda: installation.get(unit, "/readyz", host)[0] == 200,
    )


def test_workers_and_beat_run_every_loop(installation: Installation) -> None:
    """Beat starts the loops through Redis, and the worker of loops holds their leases."""
    wait_until(installation, "all leases held", lambda: installation.held_leases() == LOOPS)


def test_pages_link_collected_files(installation: Installation) -> None:
    """The sign-in page names styles by their hash, and they are served."""
    wait_until(
        installation,
        "web answers",
        lambda: installation.get("web", "/healthz", "terrace.example")[0] == 200,
    )

    status, page = installation.get("web", "/accounts/login/", "terrace.example")
    style = re.search(r'href="(/static/[^"]+\.[0-9a-f]{12}\.css)"', page)

    assert status == 200
    assert style is not None, page[:2000]
    assert installation.get("web", style[1], "terrace.example")[0] == 200


def test_units_are_the_supervisors_programs() -> None:
    """What `make up` gives its programs, the units give theirs: queues, and options of servers."""
    own = {"--host", "--port", "--fd", "--timeout-graceful-shutdown", "--schedule"}
    for line in programs.TABLE:
        unit = shlex.split(line_of(line.name, "ExecStart"))[1:]
        expected = {word for word in line.arguments if word.split("=")[0] not in own}

        assert {word for word in unit if word.split("=")[0] not in own} == expected
