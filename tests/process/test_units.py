"""The command lines of the systemd units, run as they stand in production's environment."""

import ast
import json
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
from urllib.parse import urlsplit

import psycopg
import pytest

from controlplane.database_roles import ROLES
from controlplane.supervisor import programs
from controlplane.supervisor.ports import any_free
from controlplane.supervisor.postgres import SUPERUSER
from controlplane.supervisor.processes import tail
from tests.embedded import EmbeddedServices

CHECKOUT = Path(__file__).resolve().parent.parent.parent
UNITS = CHECKOUT / "deploy" / "systemd"
NAMES = ("web", "gateway", "worker", "loops", "beat")
PATIENCE_SECONDS = 180.0  # a busy machine is slow, not wrong
HELD = "SELECT count(*) FROM scheduling_lease WHERE expires_at > clock_timestamp()"
# What systemd takes for success; uvicorn ends by the signal that it was asked with.
GOOD = {0, -signal.SIGTERM}
PASSWORD = secrets.token_urlsafe(24)
AUDIT = ("tenants_auditrow", "tenants_auditseal")
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
            **self.set_by("web"),
        }

    def set_by(self, unit: str) -> dict[str, str]:
        """Return what a unit itself sets."""
        text = (UNITS / f"terrace-{unit}.service").read_text()
        lines = re.findall(r"^Environment=(.*)$", text, re.MULTILINE)
        pairs = shlex.split(self.resolve(" ".join(lines)))
        return dict(pair.split("=", 1) for pair in pairs)

    def resolve(self, line: str) -> str:
        """Put this test's places for those of a machine."""
        return (
            line.replace("/srv/terrace/.venv/bin/python", shlex.quote(sys.executable))
            .replace("/var/lib/terrace", shlex.quote(str(self.folder)))
            .replace("--port=8000", f"--port={self.ports['web']}")
            .replace("--port=8001", f"--port={self.ports['gateway']}")
        )

    def manage(self, *arguments: str, **environment: str) -> str:
        done = subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=CHECKOUT,
            env={**self.environment, **environment},
            capture_output=True,
            check=False,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def make_roles(self) -> None:
        """Do what docs/operations.md says of roles: run what the command prints, set passwords."""
        printed = self.manage("database_roles")
        with self.superuser() as connection:
            for _ in range(2):  # it is repeated after each upgrade
                connection.execute(printed.encode())
            for role in ROLES:
                connection.execute(f"ALTER ROLE {role.name} PASSWORD '{PASSWORD}'".encode())

    def superuser(self) -> psycopg.Connection:
        server = self.services.postgres
        return psycopg.connect(server.url(role=SUPERUSER), autocommit=True)

    def address_as(self, role: str) -> str:
        """Return DATABASE_URL for one of the roles."""
        given = urlsplit(self.environment["DATABASE_URL"])
        return given._replace(netloc=f"{role}:{PASSWORD}@").geturl()

    def start(self, unit: str) -> None:
        """Start a unit, as its file says, with the database's role for its kind of process."""
        role = f"terrace_{unit}" if unit in {"web", "gateway"} else "terrace_worker"
        with self.log(unit).open("wb") as log:
            self.running[unit] = subprocess.Popen(
                shlex.split(self.resolve(line_of(unit, "ExecStart"))),
                cwd=CHECKOUT,
                env={
                    **self.environment,
                    **self.set_by(unit),
                    "DATABASE_URL": self.address_as(role),
                },
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
        made.make_roles()
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


def test_restore_is_refused_while_units_run(installation: Installation) -> None:
    """The owner sees the sessions of other roles too, by the names of their units."""
    wait_until(installation, "all leases held", lambda: installation.held_leases() == LOOPS)
    script = "from controlplane.backup import database; print(database.others())"

    others = ast.literal_eval(installation.manage("shell", "--no-imports", "-c", script))

    assert {"loops"} <= set(others) <= set(NAMES)  # the others may have let go of idle sessions


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


def refuses(installation: Installation, role: str, statement: str) -> bool:
    """Tell whether a role lacks the right to a statement; any other error is one."""
    with psycopg.connect(installation.address_as(role)) as connection:
        try:
            connection.execute(statement.encode())
        except psycopg.errors.InsufficientPrivilege:
            return True
        finally:
            connection.rollback()
    return False


@pytest.mark.parametrize("role", [role.name for role in ROLES])
def test_audit_trail_is_only_added_to(installation: Installation, role: str) -> None:
    """No process can change, remove or empty audit rows and seals, nor make tables."""
    for table in AUDIT:
        assert not refuses(installation, role, f"SELECT count(*) FROM {table}")
        assert not refuses(installation, role, f"INSERT INTO {table} SELECT * FROM {table} LIMIT 0")
        for statement in (f"UPDATE {table} SET id = id", f"DELETE FROM {table}"):
            assert refuses(installation, role, statement)
        assert refuses(installation, role, f"TRUNCATE {table} CASCADE")
    assert refuses(installation, role, "CREATE TABLE of_a_process (id int)")


@pytest.mark.parametrize("role", ["terrace_gateway", "terrace_worker"])
def test_only_web_knows_how_people_sign_in(installation: Installation, role: str) -> None:
    """Second factors, links and sessions are closed to the others, who give nobody a right."""
    for table in ("mfa_authenticator", "account_emailaddress", "tenants_browsersession"):
        assert refuses(installation, role, f"SELECT count(*) FROM {table}")
        assert not refuses(installation, "terrace_web", f"SELECT count(*) FROM {table}")
    for table in ("tenants_user", "tenants_grant", "tenants_apitoken", "tenants_orgunit"):
        assert not refuses(installation, role, f"SELECT count(*) FROM {table}")
        assert refuses(installation, role, f"DELETE FROM {table} WHERE false")
        assert not refuses(installation, "terrace_web", f"DELETE FROM {table} WHERE false")


def test_units_are_the_supervisors_programs() -> None:
    """What `make up` gives its programs, the units give theirs: queues, and options of servers."""
    own = {"--host", "--port", "--fd", "--timeout-graceful-shutdown", "--schedule"}
    for line in programs.TABLE:
        unit = shlex.split(line_of(line.name, "ExecStart"))[1:]
        expected = {word for word in line.arguments if word.split("=")[0] not in own}

        assert {word for word in unit if word.split("=")[0] not in own} == expected


def test_image_runs_what_the_unit_of_web_runs() -> None:
    """The image's own command is web's line, but for the address."""
    text = (UNITS.parent / "container" / "Containerfile").read_text().replace("\\\n", "")
    found = re.search(r"^CMD (\[.*\])$", text, re.MULTILINE)
    assert found is not None

    image = [word for word in json.loads(found[1]) if not word.startswith("--host")]
    unit = [word for word in shlex.split(line_of("web", "ExecStart")) if "--host" not in word]

    assert sorted(image[1:]) == sorted(unit[1:])


@pytest.mark.parametrize("name", ["gateway", "worker", "loops", "beat"])
def test_readme_of_the_image_has_the_units_lines(name: str) -> None:
    """Who copies a command from the README runs what the unit runs."""
    readme = (UNITS.parent / "container" / "README.md").read_text()
    words = shlex.split(line_of(name, "ExecStart"))[1:]
    line = " ".join(["python", *words]).replace("--host=127.0.0.1", "--host=0.0.0.0")

    assert f"`{line.replace('/var/lib/terrace/', '/tmp/')}`" in readme
