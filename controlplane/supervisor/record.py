"""The list of children that a supervisor leaves for the next one, should it be killed itself."""

import json
import signal
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path

from controlplane.supervisor import services
from controlplane.supervisor.processes import Identity
from controlplane.supervisor.programs import place_in_end

FILE_NAME = "processes.json"
LEFTOVER_GRACE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Entry:
    """One child: its name, who it is, and the signal that ends it kindly."""

    name: str
    identity: Identity
    stop: signal.Signals


def save(folder: Path, entries: list[Entry]) -> None:
    """Replace the record."""
    services.write_private(folder / FILE_NAME, json.dumps([asdict(entry) for entry in entries]))


def load(folder: Path) -> list[Entry]:
    """Return what the last supervisor recorded; a damaged record counts as none."""
    try:
        rows = json.loads((folder / FILE_NAME).read_text(encoding="utf-8"))
        return [
            Entry(row["name"], Identity(**row["identity"]), signal.Signals(row["stop"]))
            for row in rows
        ]
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return []


def end_leftovers(folder: Path) -> list[str]:
    """End what still runs of the record, in the order in which a supervisor would.

    Tasks are no children of ours: their shims go on, and the next agent adopts them.

    Returns:
        The names of the processes that were still there.
    """
    living = [entry for entry in load(folder) if entry.identity.is_alive()]
    living.sort(key=lambda entry: place_in_end(entry.name))
    for _, group in groupby(living, key=lambda entry: place_in_end(entry.name)):
        entries = list(group)
        for entry in entries:
            entry.identity.send(entry.stop)
        for entry in entries:
            entry.identity.outlast(grace_seconds=LEFTOVER_GRACE_SECONDS)
    (folder / FILE_NAME).unlink(missing_ok=True)
    return [entry.name for entry in living]
