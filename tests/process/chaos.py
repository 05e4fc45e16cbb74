"""`make chaos`: faults at random moments while work moves, and what must hold afterwards.

An installation of its own is started. A writer submits jobs all the time; each job's tasks are real
processes that write themselves into a ledger. Meanwhile processes are killed (SIGKILL), paused
(SIGSTOP, later SIGCONT) or restarted (SIGTERM), which ones and when drawn from the seed. After each
fault a new job must run: how long that takes is the fault's recovery time.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path

import psutil

from controlplane.supervisor import record
from tests.process.ledger import Ledger
from tests.process.patient_api import ATTEMPTS, MAKE_TOKEN, VIOLATIONS, Api
from tests.process.running import PATIENCE_SECONDS, Up, data_folder, remove

VICTIMS = ("loops", "worker", "beat", "web", "gateway", "agent", "redis", "postgres")
LONGEST_BEFORE_SECONDS = 3.0
SHORTEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 5.0
BETWEEN_SUBMISSIONS_SECONDS = 1.0
TASKS = 2
FINISHED = frozenset({"Completed", "Failed", "Cancelled"})


class Kind(StrEnum):
    """What happens to a process."""

    KILL = "kill"
    PAUSE = "pause"
    RESTART = "restart"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault, as the seed says."""

    kind: Kind
    victim: str
    after_seconds: float
    pause_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Recovered:
    """A fault, and how long after its beginning a job that was submitted then ran."""

    fault: Fault
    seconds: float


@dataclass(slots=True)
class Findings:
    """What was done and what is wrong; nothing is wrong where all lists are empty."""

    seed: int
    faults: list[Recovered] = field(default_factory=list)
    jobs: int = 0
    tasks_ended: int = 0
    ended_twice: list[str] = field(default_factory=list)
    """Ended, and evicted before that was known: no fault, since the attempts did not overlap."""
    never_ended: list[str] = field(default_factory=list)
    not_completed: dict[str, str] = field(default_factory=dict)
    overlaps: list[str] = field(default_factory=list)
    unknown_attempts: list[str] = field(default_factory=list)
    settled_after_seconds: float = 0.0

    def is_clean(self) -> bool:
        """Tell whether everything held."""
        wrong = (self.never_ended, self.not_completed, self.overlaps, self.unknown_attempts)
        return not any(wrong)


def drawn(seed: int, count: int) -> list[Fault]:
    """Draw the faults; each victim's turn comes before anyone's second."""
    dice = random.Random(seed)
    found: list[Fault] = []
    while len(found) < count:
        for victim in dice.sample(VICTIMS, len(VICTIMS)):
            kind = dice.choice(list(Kind))
            pause = dice.uniform(SHORTEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
            found.append(
                Fault(
                    kind,
                    victim,
                    round(dice.uniform(0.0, LONGEST_BEFORE_SECONDS), 2),
                    round(pause, 2) if kind is Kind.PAUSE else 0.0,
                )
            )
    return found[:count]


class Writer:
    """Submits jobs until it is told to end, and remembers each that was acknowledged."""

    def __init__(self, api: Api, ledger: Ledger, seed: int) -> None:
        self.acknowledged: dict[str, str] = {}
        self._api = api
        self._ledger = ledger
        self._dice = random.Random(seed)
        self._end = threading.Event()
        self._error: BaseException | None = None

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Write in a thread of its own until this is left."""
        thread = threading.Thread(target=self._run, name="writer")
        thread.start()
        try:
            yield
        finally:
            self._end.set()
            thread.join()
        if self._error is not None:
            raise self._error

    def submit(self, name: str, seconds: float) -> str:
        """Submit one job and return its id once it is acknowledged."""
        job = self._ledger.job(name, tasks=TASKS, seconds=seconds)
        self.acknowledged[name] = self._api.submit(job)
        return self.acknowledged[name]

    def _run(self) -> None:
        number = 0
        try:
            while not self._end.wait(BETWEEN_SUBMISSIONS_SECONDS):
                self.submit(f"work-{number}", round(self._dice.uniform(0.5, 3.0), 2))
                number += 1
        except (AssertionError, OSError) as error:
            self._error = error  # raised where the writer is waited for


def strike(data: Path, fault: Fault) -> None:
    """Do what the fault says.

    A server is struck with the processes that it works in. The agent alone: its children are the
    shims, which are to outlive it.
    """
    main = next(one.identity.pid for one in record.load(data) if one.name == fault.victim)
    process = psutil.Process(main)
    family = [process]
    if fault.victim != "agent":
        family += process.children(recursive=True)
    if fault.kind is Kind.RESTART:
        # SIGTERM to PostgreSQL waits for its clients; its supervisor ends it by SIGINT as well.
        process.send_signal(signal.SIGINT if fault.victim == "postgres" else signal.SIGTERM)
        return
    if fault.kind is Kind.KILL:
        _signal_all(family, signal.SIGKILL)
        return
    _signal_all(family, signal.SIGSTOP)
    try:
        time.sleep(fault.pause_seconds)
    finally:
        _signal_all(family, signal.SIGCONT)


def _signal_all(family: list[psutil.Process], number: signal.Signals) -> None:
    for one in family:
        if one.is_running():
            try:
                one.send_signal(number)
            except psutil.NoSuchProcess:
                continue  # it ended between looking and sending


def run(up: Up, *, seed: int, faults: int) -> Findings:
    """Strike a running installation, wait until its jobs have ended, and look at what is there."""
    api = Api(up.address(), up.ask(MAKE_TOKEN))
    ledger = Ledger.make(up.data.parent / "ledger")
    writer = Writer(api, ledger, seed)
    found = Findings(seed)
    with writer.writing():
        _wait_for_phase(api, writer.submit("first", 0.1), {"Running", *FINISHED})
        for number, fault in enumerate(drawn(seed, faults)):
            time.sleep(fault.after_seconds)
            begun = time.monotonic()
            strike(up.data, fault)
            probe = writer.submit(f"probe-{number}", 0.1)
            _wait_for_phase(api, probe, {"Running", *FINISHED})
            recovered = Recovered(fault, round(time.monotonic() - begun, 2))
            found.faults.append(recovered)
            sys.stderr.write(f"{json.dumps(asdict(recovered))}\n")
    quiet = time.monotonic()
    for name, job in writer.acknowledged.items():
        phase = _wait_for_phase(api, job, FINISHED)
        if phase != "Completed":
            found.not_completed[name] = phase
    found.settled_after_seconds = round(time.monotonic() - quiet, 2)
    ended = ledger.ended()
    expected = {f"{name}-{index}" for name in writer.acknowledged for index in range(TASKS)}
    known = set(json.loads(up.ask(ATTEMPTS)))
    found.jobs = len(writer.acknowledged)
    found.tasks_ended = len(ended)
    found.ended_twice = sorted(task for task, count in ended.items() if count > 1)
    found.never_ended = sorted(expected - set(ended))
    found.overlaps = [f"{line.task} {line.attempt}" for line in ledger.overlaps()]
    found.unknown_attempts = sorted(ledger.attempts() - known)
    up.ask(VIOLATIONS)  # raises with what it says
    return found


def _wait_for_phase(api: Api, job_id: str, phases: frozenset[str] | set[str]) -> str:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (phase := api.phase(job_id)) not in phases:
        if time.monotonic() > deadline:
            message = f"job {job_id} is {phase} after {PATIENCE_SECONDS:.0f} s"
            raise AssertionError(message)
        time.sleep(0.1)
    return phase


def main() -> int:
    """Strike an installation of our own; exit status 1 says that something did not hold."""
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=None, help="default: drawn, and printed")
    parser.add_argument("--faults", type=int, default=20)
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else int.from_bytes(os.urandom(3))
    sys.stderr.write(f"SEED={seed}\n")
    data = data_folder()
    up = Up(data, with_agent=True)
    try:
        found = run(up, seed=seed, faults=given.faults)
        sys.stdout.write(f"{json.dumps(asdict(found) | {'is_clean': found.is_clean()})}\n")
    finally:
        if up.process.poll() is None:
            up.end()
        remove(data)
    return 0 if found.is_clean() else 1


if __name__ == "__main__":
    sys.exit(main())
