"""The table of Terrace's own processes: what each runs, as whom, and how it ends."""

import importlib.util
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from controlplane.supervisor.processes import Account


@dataclass(frozen=True, slots=True)
class Program:
    """One process that the supervisor keeps running."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    account: Account | None
    folder: Path
    stop: signal.Signals = signal.SIGTERM
    grace_seconds: float = 10.0
    # Descriptors of listening sockets that the process inherits.
    sockets: tuple[int, ...] = ()
    # What ends it when a killed supervisor left it behind; None: as `stop`.
    leftover_stop: signal.Signals | None = None
    # Runs before each start of the process, for instance to remove a dead one's lock file.
    before_start: Callable[[], None] | None = None
    # Says that somebody else asked it to end, in a way that may take for ever: it is told `stop`.
    is_ending: Callable[[], bool] | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """A row of the table; `{names}` in arguments are filled in from the addresses.

    `needs` is a module without which the program does not exist; `socket` names the listening
    socket that it inherits.
    """

    name: str
    needs: str
    arguments: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    socket: str = ""
    as_service: bool = True
    stop: signal.Signals = signal.SIGTERM
    grace_seconds: float = 10.0


UVICORN = (
    "-m", "uvicorn", "--no-access-log", "--lifespan=off", "--ws=websockets-sansio",
    "--timeout-graceful-shutdown=3", "--no-server-header",
)  # fmt: skip
CELERY = ("-m", "celery", "-A", "worker.app")
# A queue's name is also the name of its worker, so that several checkouts stay apart in `ps`.
CELERY_WORKER = (*CELERY, "worker", "--without-gossip", "--without-mingle", "--loglevel=INFO")

# In the order of starting. Ended in the order of `ENDING`.
TABLE = (
    Line(
        "web",
        needs="controlplane.asgi",
        # No page sends more: a larger frame is refused before it is read.
        arguments=(
            *UVICORN,
            "--ws-max-size=65536",
            "--ws-per-message-deflate=false",
            "--fd={web}",
            "controlplane.asgi:application",
        ),
        socket="web",
    ),
    Line(
        "gateway",
        needs="worker.gateway.asgi",
        arguments=(*UVICORN, "--fd={gateway}", "worker.gateway.asgi:application"),
        socket="gateway",
    ),
    Line(
        "worker",
        needs="worker.app",
        arguments=(*CELERY_WORKER, "--queues=celery", "--concurrency=2", "--hostname=tasks@%h"),
    ),
    Line(
        "loops",
        needs="worker.app",
        arguments=(*CELERY_WORKER, "--queues=loops", "--concurrency=4", "--hostname=loops@%h"),
        # Its tasks note the signal between two turns, and give their leases back.
        grace_seconds=15,
    ),
    Line(
        "beat",
        needs="worker.app",
        arguments=(*CELERY, "beat", "--loglevel=INFO", "--schedule={data}/beat/schedule"),
    ),
)

# Each group at once, one group after the other: first what would start tasks again, then the tasks,
# then what takes note of their end.
ENDING = (("beat", "loops", "worker"), ("agent",), ("gateway", "web"), ("redis", "postgres"))


def place_in_end(name: str) -> int:
    """Return when in the order of ending a program's turn is."""
    return next((place for place, names in enumerate(ENDING) if name in names), 0)


def is_written(module: str) -> bool:
    """Tell whether a module exists, without importing it."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def from_table(
    *,
    data: Path,
    sockets: Mapping[str, int],
    environment: Mapping[str, str],
    account: Account | None,
    checkout: Path,
) -> list[Program]:
    """Return the programs of the table that this installation has."""
    values = {"data": str(data), **{name: str(number) for name, number in sockets.items()}}
    return [
        Program(
            name=line.name,
            command=(sys.executable, *(word.format(**values) for word in line.arguments)),
            environment={**environment, **line.environment, "TERRACE_PROCESS": line.name},
            account=account if line.as_service else None,
            folder=checkout,
            stop=line.stop,
            grace_seconds=line.grace_seconds,
            sockets=(sockets[line.socket],) if line.socket else (),
        )
        for line in TABLE
        if is_written(line.needs)
    ]
