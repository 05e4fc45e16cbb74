"""The shuffle action: withdraw the tasks that plugins name, wherever they run."""

from __future__ import annotations

from collections.abc import Mapping

from scheduling.engine.journal import Unit, is_live
from scheduling.engine.session import Session

NAME = "shuffle"


def run(session: Session, arguments: Mapping[str, str]) -> None:
    """Evict what the first tier with an opinion names, unless a plugin spares it."""
    del arguments
    for unit in withdrawn(session):
        if all(callback(unit) for callback in session.each("revocable")):
            session.evict(unit, action=NAME, beneficiary=None)


def withdrawn(session: Session) -> list[Unit]:
    """Return what plugins want to withdraw of what may go, each task once, by job and task."""
    for tier in session.callbacks["victims"]:
        units: dict[str, Unit] = {}
        for callback in tier:
            for unit in callback():
                if all(is_live(task) and r.role.preemptable for r, task, _ in unit.tasks):
                    units.setdefault(unit.tasks[0][1].key, unit)
        if units:
            return [units[key] for key in sorted(units)]
    return []
