"""`make chaos`: faults at random moments while work moves, and what must hold afterwards.

An installation of its own is started, with a fleet of simulated nodes and proxies in its links. A
writer submits jobs all the time: of real processes, which write themselves into a ledger, and of
simulated ones. Pages stay open. Meanwhile processes are killed (SIGKILL), paused (SIGSTOP, later
SIGCONT) or restarted (SIGTERM) and links cut, slowed or stalled; which ones and when is drawn from
the seed. After each fault a new job must run: how long that takes is the fault's recovery time.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path

from tests.process.ledger import Ledger
from tests.process.open_pages import OpenPage, fresh
from tests.process.patient_api import Api
from tests.process.running import PATIENCE_SECONDS
from tests.process.struck import FLEET, FLEET_LABEL, LINKS, Struck
from tests.process.tcp_proxy import Link

SERVERS = ("loops", "worker", "beat", "web", "gateway", "agent", "redis", "postgres", FLEET)
VICTIMS = (*SERVERS, "node", *LINKS)
LONGEST_BEFORE_SECONDS = 3.0
SHORTEST_SECONDS, LONGEST_SECONDS = 1.0, 30.0
LEAST_DELAY_SECONDS, MOST_DELAY_SECONDS = 0.02, 0.3
BETWEEN_SUBMISSIONS_SECONDS = 1.0
REAL_TASKS, SIMULATED_TASKS = 2, 4
PAGES = 2
FOLLOWED_JOBS = 30
FINISHED = frozenset({"Completed", "Failed", "Aborted", "Terminated"})
MOST_CYCLES = 3
ENDS = frozenset({"Succeeded", "Lost NodeLost", "Evicted LeaseLapsed"})
"""What may become of an attempt that wrote its end: used, or given up as its lease had run out."""
FACTS = """
import json, sys
from collections import Counter
from django.core.management import call_command
from scheduling.models import Attempt, CycleRecord, Job
call_command("check_invariants", stdout=sys.stderr)
named = Counter(Job.objects.values_list("name", flat=True))
cycles = {}
for job in Job.objects.filter(name__startswith="last-"):
    bound_at = Attempt.objects.filter(job=job).order_by("bound_at")[0].bound_at
    found = CycleRecord.objects.filter(started_at__gt=job.created_at, started_at__lte=bound_at)
    cycles[job.name] = found.count()
print(json.dumps({
    "attempts": {
        str(one): f"{state} {reason}".strip()
        for one, state, reason in Attempt.objects.values_list("id", "state", "reason_code")
    },
    "doubled": [name for name, count in named.items() if count > 1],
    "cycles": cycles,
}))
"""


class Kind(StrEnum):
    """What happens to a process or to a link."""

    KILL = "kill"
    PAUSE = "pause"
    RESTART = "restart"
    CUT = "cut"
    SLOW = "slow"
    STALL = "stall"


KINDS: Mapping[str, tuple[Kind, ...]] = {
    **dict.fromkeys(SERVERS, (Kind.KILL, Kind.PAUSE, Kind.RESTART)),
    **dict.fromkeys(LINKS, (Kind.CUT, Kind.SLOW, Kind.STALL)),
    "node": (Kind.PAUSE,),
}
AT_ONCE = frozenset({Kind.KILL, Kind.RESTART})


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault, as the seed says."""

    kind: Kind
    victim: str
    after_seconds: float
    lasts_seconds: float = 0.0
    delay_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Recovered:
    """A fault, and how long after its end a job that was then submitted ran."""

    fault: Fault
    seconds: float


@dataclass(slots=True)
class Findings:
    """What was done and what is wrong; nothing is wrong where all lists are empty."""

    seed: int
    faults: list[Recovered] = field(default_factory=list)
    jobs: int = 0
    real_tasks_ended: int = 0
    ended_twice: list[str] = field(default_factory=list)
    """Ended, and given up before that was known: no fault, since the attempts did not overlap."""
    end_not_used: list[str] = field(default_factory=list)
    """Attempts that came to their end and were taken for something else, though not given up."""
    never_ended: list[str] = field(default_factory=list)
    not_completed: dict[str, str] = field(default_factory=dict)
    doubled: list[str] = field(default_factory=list)
    overlaps: list[str] = field(default_factory=list)
    unknown_attempts: list[str] = field(default_factory=list)
    late: dict[str, int] = field(default_factory=dict)
    """Jobs that started later than in the third cycle after the faults."""
    stale: list[str] = field(default_factory=list)
    """Regions of open pages that show something else than a fresh page."""
    steps_back: list[str] = field(default_factory=list)
    sockets: int = 0
    internal_errors: list[str] = field(default_factory=list)
    """Replies with 500: not lost, since they were asked for again, and yet to be looked into."""
    settled_after_seconds: float = 0.0

    def is_clean(self) -> bool:
        """Tell whether everything held."""
        wrong = (
            *(self.never_ended, self.not_completed, self.doubled, self.overlaps),
            *(self.unknown_attempts, self.late, self.stale, self.steps_back, self.end_not_used),
        )
        return not any(wrong)

    def by_kind(self) -> dict[str, dict[str, float]]:
        """Return how many faults of each kind there were, and p50 and max of their recovery."""
        seconds: defaultdict[str, list[float]] = defaultdict(list)
        for one in self.faults:
            seconds[f"{one.fault.kind} {one.fault.victim}"].append(one.seconds)
            seconds[f"{one.fault.kind}"].append(one.seconds)
        return {
            kind: {"faults": len(found), "p50": statistics.median(found), "max": max(found)}
            for kind, found in sorted(seconds.items())
        }


def drawn(seed: int, count: int, *, longest_seconds: float = LONGEST_SECONDS) -> list[Fault]:
    """Draw the faults; each victim's turn comes before anyone's second, each kind's likewise.

    How long one lasts is drawn so that 1 to 2 s are as likely as 15 to 30 s.
    """
    dice = random.Random(seed)
    found: list[Fault] = []
    left: dict[str, list[Kind]] = {victim: [] for victim in VICTIMS}
    while len(found) < count:
        for victim in dice.sample(VICTIMS, len(VICTIMS)):
            left[victim] = left[victim] or dice.sample(KINDS[victim], len(KINDS[victim]))
            kind = left[victim].pop()
            after = dice.uniform(0.0, LONGEST_BEFORE_SECONDS)
            exponent = dice.uniform(math.log(SHORTEST_SECONDS), math.log(longest_seconds))
            delay = dice.uniform(LEAST_DELAY_SECONDS, MOST_DELAY_SECONDS)
            found.append(
                Fault(
                    kind,
                    victim,
                    round(after, 2),
                    0.0 if kind in AT_ONCE else round(math.exp(exponent), 2),
                    round(delay, 3) if kind is Kind.SLOW else 0.0,
                )
            )
    return found[:count]


class Writer:
    """Submits jobs until it is told to end, and remembers each that was acknowledged."""

    def __init__(self, struck: Struck, ledger: Ledger, seed: int) -> None:
        self.acknowledged: dict[str, str] = {}
        self.real: set[str] = set()
        self._struck = struck
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

    def submit_real(self, name: str, seconds: float) -> str:
        """Submit a job of real processes, and return its id once it is acknowledged."""
        node = self._struck.node
        job = self._ledger.job(name, tasks=REAL_TASKS, seconds=seconds, node=node)
        self.real.add(name)
        return self._submit(name, job)

    def submit_simulated(self, name: str, seconds: float) -> str:
        """Submit a job for the fleet, and return its id once it is acknowledged."""
        return self._submit(name, simulated_job(name, seconds))

    def _submit(self, name: str, job: Mapping[str, object]) -> str:
        self.acknowledged[name] = self._struck.api.submit(job)
        return self.acknowledged[name]

    def _run(self) -> None:
        number = 0
        try:
            while not self._end.wait(BETWEEN_SUBMISSIONS_SECONDS):
                submit = self.submit_simulated if number % 2 else self.submit_real
                submit(f"work-{number}", round(self._dice.uniform(0.5, 3.0), 2))
                number += 1
        except (AssertionError, OSError) as error:
            self._error = error  # raised where the writer is waited for


def simulated_job(name: str, seconds: float) -> Mapping[str, object]:
    """Return a gang for the fleet that pretends to run for so many seconds."""
    return {
        "name": name,
        "queue": "default",
        "min_available": SIMULATED_TASKS,
        "annotations": {"terrace.io/simulate-seconds": f"{seconds:.3f}"},
        "policies": [{"event": "PodEvicted", "action": "RestartTask"}],
        "roles": [
            {
                "name": "main",
                "replicas": SIMULATED_TASKS,
                "gpu_milli": 1000,
                "cpu": "1",
                "memory": "1Gi",
                "command": ["train"],
                "node_selector": {FLEET_LABEL: "yes"},
            }
        ],
    }


def strike(struck: Struck, fault: Fault) -> None:
    """Do what the fault says, and return when it is over."""
    match fault.kind:
        case Kind.KILL:
            struck.kill(fault.victim)
        case Kind.RESTART:
            struck.restart(fault.victim)
        case Kind.PAUSE:
            with struck.paused(fault.victim):
                time.sleep(fault.lasts_seconds)
        case Kind.CUT | Kind.SLOW | Kind.STALL:
            how = Link(fault.kind.value)
            with struck.disturbed(fault.victim, how, fault.delay_seconds):
                time.sleep(fault.lasts_seconds)


def run(
    struck: Struck, *, seed: int, faults: int, longest_seconds: float = LONGEST_SECONDS
) -> Findings:
    """Strike a running installation, wait until its jobs have ended, and look at what is there."""
    ledger = Ledger.make(struck.data.parent / "ledger")
    writer = Writer(struck, ledger, seed)
    found = Findings(seed)
    with ExitStack() as stack:
        pages = [stack.enter_context(OpenPage(struck.socket_address())) for _ in range(PAGES)]
        _follow(pages, struck.api)
        with writer.writing():
            _wait_for_phase(struck.api, writer.submit_real("first", 0.1), {"Running", *FINISHED})
            for number, fault in enumerate(drawn(seed, faults, longest_seconds=longest_seconds)):
                time.sleep(fault.after_seconds)
                strike(struck, fault)
                over = time.monotonic()
                probe = writer.submit_real(f"probe-{number}", 0.1)
                if number < FOLLOWED_JOBS:
                    for page in pages:
                        page.follow(*(f"job:{probe}/fragment/{part}/" for part in JOB_PARTS))
                _wait_for_phase(struck.api, probe, {"Running", *FINISHED})
                recovered = Recovered(fault, round(time.monotonic() - over, 2))
                found.faults.append(recovered)
                sys.stderr.write(f"{json.dumps(asdict(recovered))}\n")
        _look(struck, writer, ledger, found)
        _look_at_pages(struck, pages, found)
    return found


JOB_PARTS = ("job_row", "job_tasks")


def _follow(pages: list[OpenPage], api: Api) -> None:
    """Show the default queue and the cluster's tree on every page."""
    queue = next(one for one in api.ask("GET", "/queues")["items"] if one["name"] == "default")
    for page in pages:
        page.follow(
            f"queue:{queue['id']}/fragment/queue_share/",
            f"queue:{queue['id']}/fragment/queue_jobs/",
        )


def _look(struck: Struck, writer: Writer, ledger: Ledger, found: Findings) -> None:
    """Wait until all has ended, and compare what was promised with ledger and database."""
    quiet = time.monotonic()
    _await_ends(struck, writer.acknowledged, found)
    found.settled_after_seconds = round(time.monotonic() - quiet, 2)
    before = set(writer.acknowledged)
    for number in range(MOST_CYCLES):  # there is room for all of them now
        writer.submit_real(f"last-real-{number}", 0.1)
        writer.submit_simulated(f"last-simulated-{number}", 0.1)
    last = {name: job for name, job in writer.acknowledged.items() if name not in before}
    _await_ends(struck, last, found)
    ended = ledger.ended()
    expected = {f"{name}-{index}" for name in writer.real for index in range(REAL_TASKS)}
    facts = json.loads(struck.up.ask(FACTS))  # raises with what `check_invariants` says
    found.internal_errors = struck.api.internal_errors
    found.jobs = len(writer.acknowledged)
    found.real_tasks_ended = len(ended)
    found.ended_twice = sorted(task for task, count in ended.items() if count > 1)
    found.end_not_used = sorted(
        f"{line.task} {line.attempt}: {became}"
        for line in ledger.lines()
        if line.what == "end"
        if (became := facts["attempts"].get(line.attempt, "unknown")) not in ENDS
    )
    found.never_ended = sorted(expected - set(ended))
    found.overlaps = [f"{line.task} {line.attempt}" for line in ledger.overlaps()]
    found.unknown_attempts = sorted(ledger.attempts() - set(facts["attempts"]))
    found.doubled = facts["doubled"]
    found.late = {name: count for name, count in facts["cycles"].items() if count > MOST_CYCLES}


def _await_ends(struck: Struck, jobs: Mapping[str, str], found: Findings) -> None:
    """Wait until these jobs have finished, and note those that did not complete."""
    for name, job in jobs.items():
        phase = _wait_for_phase(struck.api, job, FINISHED)
        if phase != "Completed":
            found.not_completed[name] = phase


def _look_at_pages(struck: Struck, pages: list[OpenPage], found: Findings) -> None:
    """Compare what the open pages show with fresh ones; give them the time of a few looks."""
    for page in pages:
        deadline = time.monotonic() + PATIENCE_SECONDS / 10
        while stale := _stale(struck, page):
            if time.monotonic() > deadline:
                break
            time.sleep(0.5)
        found.stale += stale
        found.steps_back += page.steps_back
        found.sockets += page.sockets


def _stale(struck: Struck, page: OpenPage) -> list[str]:
    now = fresh(struck.socket_address(), page.regions)
    return [key for key in page.regions if page.shown.get(key) != now.get(key, "nothing")]


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
    parser.add_argument("--longest", type=float, default=LONGEST_SECONDS, help="s that one lasts")
    parser.add_argument("--fleet", type=int, default=20, help="simulated nodes")
    parser.add_argument("--logs", type=Path, default=None, help="a new folder to keep all logs in")
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else int.from_bytes(os.urandom(3))
    sys.stderr.write(f"SEED={seed}\n")
    with Struck(fleet=given.fleet, keep_logs=given.logs) as struck:
        found = run(struck, seed=seed, faults=given.faults, longest_seconds=given.longest)
        report = asdict(found) | {"by_kind": found.by_kind(), "is_clean": found.is_clean()}
        sys.stdout.write(f"{json.dumps(report, indent=1)}\n")
    return 0 if found.is_clean() else 1


if __name__ == "__main__":
    sys.exit(main())
