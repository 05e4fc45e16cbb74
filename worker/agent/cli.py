"""The command line of the node agent: `join` once, then `run`."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fcntl
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from worker.agent import config, identity
from worker.agent.config import AgentConfig, ConfigError
from worker.agent.folders import NodeFolders, choose_jobs_folder
from worker.agent.host import HostMachine
from worker.agent.identity import Identity, JoinError
from worker.agent.machine import Machine
from worker.agent.node import Node
from worker.agent.preparing import Preparer
from worker.agent.session import NodeSession
from worker.agent.simulated import EXAMPLE, Shape, SimulatedMachine, SimulateError, parse_shape
from worker.agent.users import TaskUsers
from worker.shim import linux

logger = logging.getLogger("worker.agent")

CONFIG_FILE: Final = "agent.toml"
LOCK_FILE: Final = "agent.lock"
EXIT_USAGE: Final = 2
FROM_STDIN: Final = "-"
EXIT_SUPERSEDED: Final = 4
OPENING_AT_ONCE: Final = 16
"""Sessions of a fleet that wait for their Welcome: all at once, the last would time out."""


class RunError(Exception):
    """The agent cannot run; the text says why and what to do."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out one command; return the exit status of the process."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr
    )
    try:
        if options.command == "join":
            return _join(options)
        return _run(options)
    except (JoinError, ConfigError, SimulateError, RunError) as error:
        print(f"terrace-agent: {error}", file=sys.stderr)
        return EXIT_USAGE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="terrace-agent", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    join = commands.add_parser("join", help="exchange a one-use token for this node's credential")
    join.add_argument("--server", required=True, help="the gateway, e.g. https://gateway:8443")
    token = join.add_mutually_exclusive_group(required=True)
    token.add_argument(
        "--token", help="from the cluster page; -: from stdin, where `ps` does not show it"
    )
    token.add_argument("--token-file", type=Path, help="a file that holds the token")
    join.add_argument("--data", required=True, type=Path, help="the agent's own folder")
    join.add_argument("--name", default=_host_name(), help="default: the host name")
    join.add_argument(
        "--nodes",
        type=_positive,
        help="join this many nodes to be simulated by one process; those that did are left alone",
    )
    run = commands.add_parser("run", help="run the tasks that this node is given")
    run.add_argument("--data", required=True, type=Path, help="the folder given to join")
    run.add_argument("--server", help="the gateway, to join it first or because it has moved")
    run.add_argument("--token-file", type=Path, help="a file that holds the token to join with")
    run.add_argument("--name", default=_host_name(), help="to join under; default: the host name")
    run.add_argument("--simulate", metavar="SHAPE", help=f"pretend a machine: {EXAMPLE}")
    run.add_argument(
        "--nodes",
        type=_positive,
        help="simulated only: stand for this many nodes; missing ones join by --token-file",
    )
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not a number of nodes; give 1 or more")
    return number


def _join(options: argparse.Namespace) -> int:
    if options.token is None:
        token = _read_token(options.token_file)
    else:
        token = sys.stdin.read().strip() if options.token == FROM_STDIN else options.token
    settings = _load_config(options.data)
    if options.nodes is not None:
        _join_fleet(options, token, settings)
    else:
        _join_one(options.server, token, options.name, options.data, settings)
    return 0


def _join_fleet(options: argparse.Namespace, token: str, settings: AgentConfig) -> None:
    """Join those of the nodes 0, 1, ... that have not joined yet."""
    wanted = {
        f"{options.name}-{number}": options.data / "nodes" / str(number)
        for number in range(options.nodes)
    }
    missing = {
        name: folder for name, folder in wanted.items() if not (folder / identity.FILE).exists()
    }
    if not missing:
        raise JoinError(f"{options.data} already holds {options.nodes} nodes; run them")
    joined = identity.join_fleet(
        server=options.server, token=token, folders=missing, ca_file=settings.ca_file
    )
    names = list(missing)
    span = f"{names[0]} to {names[-1]}: {len(joined)} nodes"
    print(f"joined {options.server} as {span}", flush=True)


def _join_one(server: str, token: str, name: str, folder: Path, settings: AgentConfig) -> None:
    joined = identity.join(
        server=server, token=token, name=name, data=folder, ca_file=settings.ca_file
    )
    print(f"joined {joined.server} as {name}, node {joined.node}", flush=True)


def _read_token(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise RunError(f"--token-file {path} cannot be read: {error.strerror}") from error


def _host_name() -> str:
    return socket.gethostname().lower()


def _run(options: argparse.Namespace) -> int:
    data: Path = options.data
    shape = parse_shape(options.simulate) if options.simulate is not None else None
    if options.nodes is not None and shape is None:
        raise RunError("--nodes needs --simulate: one process stands for one real machine")
    data.mkdir(mode=0o711, parents=True, exist_ok=True)
    with _only_agent(data):
        settings = _load_config(data)
        if options.server:
            _join_or_move(options, settings)
        folders = _node_folders(data, options.nodes)
        if len(folders) > 1 and shape is None:
            raise RunError(
                f"{data} holds {len(folders)} nodes; only simulated ones can share a process"
            )
        return asyncio.run(_serve(folders, settings, shape))


def _join_or_move(options: argparse.Namespace, settings: AgentConfig) -> None:
    """Join what has not joined yet, if a token is at hand; tell the rest where the gateway is."""
    data: Path = options.data
    joined = _joined_folders(data)
    for folder in joined:
        identity.move(folder, options.server)
    if options.token_file is None or (data / identity.FILE).exists():
        return
    if options.nodes is None:
        if not joined:
            token = _read_token(options.token_file)
            _join_one(options.server, token, options.name, data, settings)
    elif len(joined) < options.nodes:
        _join_fleet(options, _read_token(options.token_file), settings)


def _joined_folders(data: Path) -> list[Path]:
    """Return the folders of the nodes that joined: the data folder itself, or those of a fleet."""
    if (data / identity.FILE).exists():
        return [data]
    found = sorted(data.glob(f"nodes/*/{identity.FILE}"), key=lambda path: int(path.parent.name))
    return [path.parent for path in found]


def _load_config(data: Path) -> AgentConfig:
    return config.load(data / CONFIG_FILE)


def _node_folders(data: Path, count: int | None) -> list[Path]:
    found = _joined_folders(data)
    folders = found[:count]
    if not folders or (count is not None and len(folders) < count):
        raise RunError(f"{data} holds {len(found)} joined nodes; join first (terrace-agent join)")
    return folders


@contextlib.contextmanager
def _only_agent(data: Path) -> Iterator[None]:
    """Refuse a second agent on the same folder."""
    fd = os.open(data / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise RunError(f"another agent runs with --data {data}; end it first") from None
    try:
        yield
    finally:
        os.close(fd)


async def _serve(folders: list[Path], settings: AgentConfig, shape: Shape | None) -> int:
    """Run all nodes until a signal, or until every one was superseded.

    SIGTERM leaves the tasks running for the next agent; SIGINT and SIGUSR1 end them first, each
    with its grace, and wait until the control plane knows. A second one does not wait.
    """
    nodes = [_make_node(folder, settings, shape) for folder in folders]
    for node, _ in nodes:
        for warning in node.machine.warnings():
            print(f"WARNING: {warning}", file=sys.stderr, flush=True)
    for node, _ in nodes:
        node.load()
    leave, end = _listen_to_signals()
    turn = asyncio.Semaphore(OPENING_AT_ONCE)
    sessions = [
        NodeSession(node=node, identity=who, ca_file=settings.ca_file, turn=turn)
        for node, who in nodes
    ]
    superseded = asyncio.gather(*(session.run() for session in sessions))
    wait = _wait_for_end(leave, end, [node for node, _ in nodes])
    ending = asyncio.ensure_future(wait)
    waited_for: set[asyncio.Future[Any]] = {ending, superseded}
    try:
        await asyncio.wait(waited_for, return_when=asyncio.FIRST_COMPLETED)
        if ending.done():
            return 0
        print(f"terrace-agent: {superseded.result()[0]}", file=sys.stderr)
        return EXIT_SUPERSEDED
    finally:
        for work in waited_for:
            work.cancel()
        await asyncio.gather(*waited_for, return_exceptions=True)
        for node, _ in nodes:
            await node.machine.close()


def _listen_to_signals() -> tuple[asyncio.Event, asyncio.Event]:
    """Return (leave, end): what the signals ask for."""
    leave, end = asyncio.Event(), asyncio.Event()

    def ask_to_end() -> None:
        (leave if end.is_set() else end).set()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, leave.set)
    loop.add_signal_handler(signal.SIGINT, ask_to_end)
    loop.add_signal_handler(signal.SIGUSR1, ask_to_end)
    return leave, end


async def _wait_for_end(leave: asyncio.Event, end: asyncio.Event, nodes: list[Node]) -> None:
    """Return when the agent may go."""
    left = asyncio.create_task(leave.wait())
    asked = asyncio.create_task(end.wait())
    try:
        await asyncio.wait({asked, left}, return_when=asyncio.FIRST_COMPLETED)
        if not left.done():
            for node in nodes:
                node.shut_down()
            quiet = asyncio.gather(*(node.wait_until_quiet() for node in nodes))
            waited_for: set[asyncio.Future[Any]] = {quiet, left}
            await asyncio.wait(waited_for, return_when=asyncio.FIRST_COMPLETED)
            quiet.cancel()
    finally:
        asked.cancel()
        left.cancel()


def _make_node(folder: Path, settings: AgentConfig, shape: Shape | None) -> tuple[Node, Identity]:
    who = identity.load(folder)
    users = TaskUsers(settings, folder)
    may_mount = shape is None and linux.may_mount()
    needs_passage = shape is None and users.is_dropping and not may_mount
    jobs = choose_jobs_folder(folder, settings.jobs_folder, needs_passage=needs_passage)
    folders = NodeFolders(data=folder.absolute(), jobs=jobs)
    machine: Machine
    if shape is not None:
        machine = SimulatedMachine(shape=shape, node=who.node)
    else:
        preparer = Preparer(
            config=settings, folders=folders, users=users, identity=who, may_mount=may_mount
        )
        machine = HostMachine(config=settings, folders=folders, preparer=preparer)
    node = Node(
        name=who.node,
        folders=folders,
        machine=machine,
        runtimes=list(settings.runtimes.values()),
        address=settings.address,
        keep_seconds=settings.keep_attempts_seconds,
    )
    return node, who
