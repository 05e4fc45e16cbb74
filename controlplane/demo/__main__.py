"""`make demo`: two tenants, 50 simulated nodes and a trace, on a Terrace that runs or is started.

Prints one JSON object. Nothing here imports Django: people are made by `manage.py seed_demo`, and
all else goes through the public API, with the people's own tokens.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from controlplane.client.rest import RefusedError, RestClient, UnreachableError
from controlplane.demo import replay, traces
from controlplane.demo.organisation import OPERATOR
from controlplane.demo.replay import Json, Replayer, Sampler
from controlplane.supervisor import services
from controlplane.supervisor.services import Services, write_private
from scheduling.engine.types import GPU
from scheduling.simulator.replay import Arrival
from scheduling.simulator.trace import TraceError

CHECKOUT = Path(__file__).resolve().parent.parent.parent
START_SECONDS = 300.0
GPUS_OF_A_NODE = 8
SHAPE = f"gpus={GPUS_OF_A_NODE},cpu=64,memory=512Gi"
FLEET = "demo"


class DemoError(Exception):
    """It cannot go on; the text says why and what would help."""


def main() -> int:
    """Run it; exit status 1 says that something was missing or not all jobs completed."""
    given = _arguments()
    # What runs below us is ended in order, whoever asks.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    data = Path(os.environ.get("TERRACE_DATA") or CHECKOUT / ".terrace").resolve()
    try:
        clusters = traces.read_clusters(given.trace)
        arrivals = traces.read_jobs(given.trace, most=given.jobs)
        with _installation(data) as found:
            people = _seed(data, given, arrivals)
            operator = replay.connect(found.public_url, people["tokens"][OPERATOR])
            with _fleet(data, found, operator, given.nodes) as capacity:
                _say(f"Watch it at {found.public_url}; passwords are in {data}/demo/people.json")
                replayer = Replayer(found.public_url, people["tokens"], clusters, given.speed)
                report = _run(replayer, operator, arrivals, capacity, given, data)
                sys.stdout.write(json.dumps(report, indent=1) + "\n")
                sys.stdout.flush()
                if given.stay:
                    _say("It goes on until Ctrl-C.")
                    signal.pause()
    except (DemoError, OSError, RefusedError, TraceError, UnreachableError) as error:
        _say(str(error))
        return 1
    except KeyboardInterrupt:
        return 130
    return 0 if report["waits"]["all"]["completed"] == len(arrivals) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    folder = CHECKOUT / "examples" / "philly"
    parser.add_argument("--trace", type=Path, default=folder, help="folder (docs/demo.md)")
    parser.add_argument("--jobs", type=int, default=2000, help="the first so many of the trace")
    parser.add_argument("--speed", type=float, default=10.0, help="times as fast as it was")
    parser.add_argument("--nodes", type=int, default=50, help="simulated nodes of 8 GPUs")
    parser.add_argument("--burst", type=int, default=200, help="jobs submitted without a pause")
    parser.add_argument("--patience", type=float, default=1800.0, help="seconds to wait for jobs")
    parser.add_argument("--stay", action="store_true", help="go on until Ctrl-C")
    given = parser.parse_args()
    for name in ("jobs", "speed", "nodes"):
        if getattr(given, name) <= 0:
            parser.error(f"--{name} must be more than 0")
    return given


def _run(
    replayer: Replayer,
    operator: RestClient,
    arrivals: Sequence[Arrival],
    capacity: int,
    given: argparse.Namespace,
    data: Path,
) -> Json:
    run = f"demo-{uuid4().hex[:6]}"
    sampler = Sampler(operator, capacity)
    begun = time.monotonic()
    with sampler.running():
        submitted = replayer.play(run, arrivals, at_once=False)
        last = time.monotonic()
        _say(f"{len(submitted)} jobs are in after {last - begun:.0f} s; waiting for their end.")
        jobs = replay.wait_until_finished(operator, run, len(arrivals), given.patience)
    ended = time.monotonic()
    burst = list(arrivals[: given.burst])
    again = replayer.play(f"{run}-burst", burst, at_once=True) if burst else []
    burst_seconds = time.monotonic() - ended
    replay.cancel(operator, again)
    with (data / "demo" / "cycles.jsonl").open("w", encoding="utf-8") as file:
        fairness = replay.fairness(sampler.cycles, file.write)
    return {
        "jobs": len(submitted),
        "nodes": given.nodes,
        "speed": given.speed,
        "submitted_in_s": round(last - begun, 1),
        "submitted_late_p95_s": replay.percentile([one.late_seconds for one in submitted], 95),
        "all_ended_after_s": round(ended - begun, 1),
        "burst": {
            "jobs": len(again),
            "submissions_per_second": round(len(again) / burst_seconds, 1) if again else None,
        },
        "waits": replay.waits(jobs, submitted, given.speed),
        "fairness": fairness
        | {"cycles_file": str(data / "demo" / "cycles.jsonl"), "samples_missed": sampler.missed},
    }


@contextmanager
def _installation(data: Path) -> Iterator[Services]:
    """Give the Terrace that runs on the data folder, or one that is started and ended here."""
    found = services.read(data)
    if found is not None:
        yield found
        return
    _say("No Terrace runs here: starting one.")
    up = subprocess.Popen(
        [sys.executable, "manage.py", "up"],
        cwd=CHECKOUT,
        env={**os.environ, "TERRACE_DATA": str(data)},
        stdout=sys.stderr,
        start_new_session=True,
    )
    try:
        yield _wait_for_services(data, up)
    finally:
        up.send_signal(signal.SIGINT)
        up.wait()


def _wait_for_services(data: Path, up: subprocess.Popen[bytes]) -> Services:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and up.poll() is None:
        found = services.read(data)
        # The local agent joins last: with its identity there is a database, and web answers.
        if found is not None and (data / "agent" / "node.json").exists():
            return found
        time.sleep(0.2)
    raise DemoError("Terrace did not start; what it says stands above.")


def _seed(data: Path, given: argparse.Namespace, arrivals: Sequence[Arrival]) -> Json:
    largest = max(replay.gpus_of(one) for one in arrivals)
    subprocess.run(  # noqa: S603 -- our own program, on a folder that the caller names
        [
            *(sys.executable, "manage.py", "seed_demo", "--trace", str(given.trace.resolve())),
            *(f"--gpus={given.nodes * GPUS_OF_A_NODE}", f"--largest={largest}"),
        ],
        cwd=CHECKOUT,
        env={**os.environ, "TERRACE_DATA": str(data)},
        stdout=sys.stderr,
        check=True,
    )
    people: Json = json.loads((data / "demo" / "people.json").read_text(encoding="utf-8"))
    return people


@contextmanager
def _fleet(data: Path, found: Services, operator: RestClient, count: int) -> Iterator[int]:
    """Run the simulated nodes as one process, and give how many thousandths of a GPU they have."""
    folder = data / "demo" / "fleet"
    folder.mkdir(mode=0o700, exist_ok=True)
    token = operator.post(
        "nodes/join-tokens", {"uses": count, "labels": {replay.NODE_LABEL: "yes"}}
    )
    write_private(folder / "join-token", token["secret"])
    with (folder / "log").open("ab") as log:
        agent = subprocess.Popen(  # noqa: S603 -- our own program and our own server's address
            [
                *(sys.executable, "-m", "worker.agent", "run"),
                *("--server", found.gateway_url, "--token-file", str(folder / "join-token")),
                *("--data", str(folder), "--name", FLEET, "--nodes", str(count)),
                *("--simulate", SHAPE),
            ],
            cwd=CHECKOUT,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and agent.poll() is None:
            nodes = [n for n in operator.items("nodes", most=100_000) if n["is_schedulable"]]
            if sum(node["name"].startswith(f"{FLEET}-") for node in nodes) >= count:
                break
            time.sleep(0.5)
        else:
            raise DemoError(f"The simulated nodes did not get ready; see {folder}/log")
        yield sum(node["allocatable"].get(GPU, 0) for node in nodes)
    finally:
        agent.send_signal(signal.SIGTERM)
        agent.wait()


def _say(sentence: str) -> None:
    sys.stderr.write(f"{sentence}\n")


if __name__ == "__main__":
    sys.exit(main())
