"""An installation to strike: `make up` with our proxies in its links, and a simulated fleet."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self
from urllib.parse import SplitResult, parse_qs, urlsplit

import psutil

from controlplane.supervisor import record, services
from controlplane.supervisor.ports import any_free
from tests.process.patient_api import MAKE_TOKEN, Api
from tests.process.running import (
    CHECKOUT,
    MINIMAL_ENVIRONMENT,
    PATIENCE_SECONDS,
    Up,
    data_folder,
    remove,
)
from tests.process.tcp_proxy import Address, Link, TcpProxy

LINKS = ("gateway-link", "redis-link", "postgres-link")
FLEET = "fleet"
FLEET_LABEL = "simulated"


class Struck:
    """A running installation whose processes and links may be struck."""

    def __init__(self, *, fleet: int, keep_logs: Path | None = None) -> None:
        """Say how many simulated nodes there are, and in which new folder the logs are kept."""
        self._keep_logs = keep_logs
        self.data = data_folder()
        self.links = {name: TcpProxy() for name in LINKS}
        self._fleet_size = fleet
        self._fleet: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Start everything, and wait until all nodes are ready."""
        for link in self.links.values():
            link.__enter__()
        port = any_free()
        self.links["gateway-link"].target = Address(port=port)
        gateway_url = f"http://127.0.0.1:{self.links['gateway-link'].port}"
        self.up = Up(
            self.data,
            with_agent=True,
            TERRACE_GATEWAY_PORT=str(port),
            TERRACE_GATEWAY_URL=gateway_url,
        )
        self._lead_through_links()
        self.api = Api(self.up.address(), self.up.ask(MAKE_TOKEN))
        self.node = self._ready_nodes(1)[0]["name"]
        self._start_fleet(self.api.ask("POST", "/nodes/join-tokens", self._join_token())["secret"])
        self._ready_nodes(1 + self._fleet_size)
        for name, link in self.links.items():
            assert link.connections, f"nothing goes through {name}"
        return self

    def __exit__(self, *_: object) -> None:
        """End everything, and leave nothing."""
        for link in self.links.values():
            link.be(Link.PASS)
        if self._fleet is not None:
            self._fleet.kill()
            self._fleet.wait()
        if self.up.process.poll() is None:
            self.up.end()
        for link in self.links.values():
            link.__exit__()
        if self._keep_logs is not None:
            shutil.copytree(self.data / "logs", self._keep_logs)
        remove(self.data)

    def _lead_through_links(self) -> None:
        """Tell all processes that are started from now on to go to the proxies.

        The supervisor writes the addresses when its servers run, and prepares the database before
        it starts the first process that reads them.
        """
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (found := services.read(self.data)) is None:
            assert time.monotonic() < deadline, self.up.said()
            assert self.up.process.poll() is None, self.up.said()
            time.sleep(0.01)
        database, broker = urlsplit(found.database_url), urlsplit(found.redis_url)
        socket = Path(parse_qs(database.query)["host"][0]) / ".s.PGSQL.5432"
        self.links["postgres-link"].target = Address(socket=socket)
        self.links["redis-link"].target = Address(port=broker.port or 0)
        owner = (self.data / services.FILE_NAME).stat()
        services.write(
            self.data,
            replace(
                found,
                database_url=self._through("postgres-link", database._replace(query="")),
                redis_url=self._through("redis-link", broker),
            ),
            owner=(owner.st_uid, owner.st_gid),
        )

    def _through(self, link: str, parts: SplitResult) -> str:
        account = parts.netloc.rpartition("@")[0]
        return parts._replace(netloc=f"{account}@127.0.0.1:{self.links[link].port}").geturl()

    # --- the fleet --------------------------------------------------------------------------------

    def _join_token(self) -> dict[str, object]:
        return {"uses": self._fleet_size, "labels": {FLEET_LABEL: "yes"}}

    def _start_fleet(self, token: str) -> None:
        folder = self.data / FLEET
        folder.mkdir()
        (folder / "token").write_text(token)
        self._spawn_fleet()

    def _spawn_fleet(self) -> None:
        folder = self.data / FLEET
        with (folder / "log").open("ab") as log:
            self._fleet = subprocess.Popen(
                [
                    *(sys.executable, "-m", "worker.agent", "run"),
                    *("--server", f"http://127.0.0.1:{self.links['gateway-link'].port}"),
                    *("--token-file", str(folder / "token"), "--data", str(folder)),
                    *("--name", FLEET, "--nodes", str(self._fleet_size)),
                    *("--simulate", "gpus=8,cpu=64,memory=512Gi"),
                ],
                cwd=CHECKOUT,
                env=MINIMAL_ENVIRONMENT,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _ready_nodes(self, count: int) -> list[dict[str, Any]]:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            nodes = [n for n in self.api.ask("GET", "/nodes")["items"] if n["is_schedulable"]]
            if len(nodes) >= count:
                return nodes
            assert time.monotonic() < deadline, f"{len(nodes)} of {count} nodes are ready"
            time.sleep(0.2)

    # --- what can happen to a process -------------------------------------------------------------

    def family(self, victim: str) -> list[psutil.Process]:
        """Return what is struck with a victim: a server with the processes that it works in.

        The agent alone, since its shims are to outlive it; `node` is the agent with them and their
        tasks.
        """
        if victim == "node":
            mark = str(self.data / "agent")
            agents = [one for one in psutil.process_iter() if mark in _command_of(one)]
            children = [child for one in agents for child in _children_of(one)]
            return list(dict.fromkeys((*agents, *children)))
        if victim == FLEET:
            assert self._fleet is not None
            return [psutil.Process(self._fleet.pid)]
        main = psutil.Process(self._pid_of(victim))
        return [main] if victim == "agent" else [main, *_children_of(main)]

    def _pid_of(self, victim: str) -> int:
        """Return the process of a program; one that is just being started again is waited for."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            for entry in record.load(self.data):
                if entry.name == victim and entry.identity.is_alive():
                    return entry.identity.pid
            assert time.monotonic() < deadline, f"{victim} does not run:\n{self.up.said()}"
            time.sleep(0.05)

    def kill(self, victim: str) -> None:
        """SIGKILL."""
        _signal_all(self.family(victim), signal.SIGKILL)
        self._revive(victim)

    def restart(self, victim: str) -> None:
        """SIGTERM to the program alone, as a service manager does."""
        self.family(victim)[0].send_signal(signal.SIGTERM)
        self._revive(victim)

    def _revive(self, victim: str) -> None:
        if victim == FLEET and self._fleet is not None:  # the others have their supervisor
            self._fleet.wait(PATIENCE_SECONDS)
            self._spawn_fleet()

    @contextmanager
    def paused(self, victim: str) -> Iterator[None]:
        """SIGSTOP, and SIGCONT at the end."""
        family = self.family(victim)
        _signal_all(family, signal.SIGSTOP)
        try:
            yield
        finally:
            _signal_all(family, signal.SIGCONT)

    @contextmanager
    def disturbed(self, link: str, how: Link, delay_seconds: float) -> Iterator[None]:
        """Cut, slow or stall a link, and let it pass at the end."""
        proxy = self.links[link]
        proxy.be(how, delay_seconds=delay_seconds)
        try:
            yield
        finally:
            proxy.be(Link.PASS)

    def socket_address(self) -> Callable[[], str]:
        """Return what gives the address of a new live socket, each with a ticket of its own."""
        return lambda: str(self.api.ask("POST", "/live/tickets", {}, once=True)["url"])


def _children_of(process: psutil.Process) -> list[psutil.Process]:
    try:
        found: list[psutil.Process] = process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return found


def _command_of(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return ""


def _signal_all(family: list[psutil.Process], number: signal.Signals) -> None:
    for one in family:
        try:
            one.send_signal(number)
        except psutil.NoSuchProcess:
            continue  # it ended between looking and sending
