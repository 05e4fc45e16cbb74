"""Replay a trace on a virtual cluster: `python -m scheduling.simulator --help`."""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import lzma
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from scheduling.engine.config import DEFAULT_CONFIG, parse_config
from scheduling.engine.types import Config, Node, Plan, Queue, Snapshot
from scheduling.engine.verify import check
from scheduling.simulator import trace
from scheduling.simulator.page import page
from scheduling.simulator.replay import Arrival, Settings, World, replay, with_limits
from scheduling.simulator.report import Report, read_report, report

READERS: dict[str, Callable[[TextIO], Iterator[Arrival]]] = {
    "philly": trace.read_philly,
    "helios": trace.read_helios,
    "openb": trace.read_openb_pods,
    "swf": trace.read_swf,
    "recorded": trace.read_recorded,
}

PLOTLY = (
    Path(__file__).resolve().parents[2]
    / "static/vendor/plotly.js-strict-4.1.1/plotly-strict.min.js"
)


def main(arguments: Sequence[str]) -> int:
    """Replay, print the report as JSON, write the page if one is asked for."""
    options = _parser().parse_args(arguments)
    try:
        arrivals = list(_arrivals(options))
        nodes = _nodes(options)
        queues = _queues(options, arrivals)
        config = _config(options.config)
        beside = _beside(options.beside)
    except (trace.TraceError, OSError, EOFError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 2

    def verify(snapshot: Snapshot, plan: Plan) -> None:
        problems = check(snapshot, plan, config)
        if problems:
            raise AssertionError(f"a plan breaks a rule: {problems[0]}")

    day = replay(
        World(tuple(nodes), tuple(queues)),
        arrivals,
        config=config,
        settings=Settings(
            cycle_seconds=options.cycle,
            start_seconds=options.start,
            grace_seconds=options.grace,
            checkpoint_seconds=options.checkpoint,
            until=options.until,
        ),
        check=verify if options.verify else None,
    )
    result = report(day)
    sys.stdout.write(json.dumps(result.as_json(), indent=2) + "\n")
    if options.page is not None:
        library = options.plotly.read_text(encoding="utf-8")
        text = page(day, result, title=options.trace.name, plotly=library, beside=beside)
        options.page.write_text(text, encoding="utf-8")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m scheduling.simulator",
        description="Replay a trace on a virtual cluster with Terrace's engine and lifecycle.",
    )
    parser.add_argument("trace", type=Path, help="the trace; .gz and .xz are unpacked")
    parser.add_argument("--format", choices=sorted(READERS), default="recorded")
    parser.add_argument("--limit", type=int, help="only so many jobs")
    parser.add_argument("--nodes", type=int, default=16, help="so many machines of 8 GPUs")
    parser.add_argument("--openb-nodes", type=Path, help="machines from an openb node list")
    parser.add_argument("--queues", type=Path, help="JSON: name -> {parent, min, max, weight}")
    parser.add_argument("--philly-clusters", type=Path, help="machines and queues from Philly's")
    parser.add_argument("--walls", action="store_true", help="each queue's min is its wall too")
    parser.add_argument("--config", type=Path, help="a scheduler configuration as Volcano's")
    parser.add_argument("--cycle", type=float, default=1.0, help="seconds between cycles")
    parser.add_argument("--start", type=float, default=0.0, help="seconds from bind to work")
    parser.add_argument("--grace", type=float, default=0.0, help="seconds that a victim keeps")
    parser.add_argument("--checkpoint", type=float, help="seconds between checkpoints")
    parser.add_argument("--time-limits", type=float, help="limit = run time times this")
    parser.add_argument("--until", type=float, default=float("inf"), help="end of the day")
    parser.add_argument("--verify", action="store_true", help="check every plan independently")
    parser.add_argument("--page", type=Path, help="write charts to this HTML file")
    parser.add_argument("--beside", type=Path, help="another replay's JSON, to compare on the page")
    parser.add_argument("--plotly", type=Path, default=PLOTLY, help="the script for the charts")
    return parser


@contextmanager
def _open(path: Path) -> Iterator[TextIO]:
    if path.suffix == ".gz":
        with gzip.open(path, "rt", encoding="utf-8", errors="replace") as unpacked:
            yield unpacked
    elif path.suffix == ".xz":
        with lzma.open(path, "rt", encoding="utf-8", errors="replace") as unpacked:
            yield unpacked
    else:
        with path.open(encoding="utf-8", errors="replace") as file:
            yield file


def _arrivals(options: argparse.Namespace) -> Iterator[Arrival]:
    with _open(options.trace) as file:
        for arrival in itertools.islice(READERS[options.format](file), options.limit):
            yield with_limits(arrival, options.time_limits) if options.time_limits else arrival


def _nodes(options: argparse.Namespace) -> list[Node]:
    if options.philly_clusters is not None:
        with _open(options.philly_clusters) as file:
            return trace.read_philly_clusters(file)[0]
    if options.openb_nodes is not None:
        with _open(options.openb_nodes) as file:
            return list(trace.read_openb_nodes(file))
    return trace.gpu_nodes(options.nodes)


def _queues(options: argparse.Namespace, arrivals: Sequence[Arrival]) -> list[Queue]:
    """Return the queues that a file names; a queue of the trace that none names has weight 1."""
    queues: list[Queue] = []
    if options.philly_clusters is not None:
        with _open(options.philly_clusters) as file:
            queues = trace.read_philly_clusters(file)[1]
    elif options.queues is not None:
        with _open(options.queues) as file:
            queues = list(trace.read_queues(file.read()))
    if options.walls:
        queues = trace.walled(queues)
    known = {queue.name for queue in queues}
    names = sorted({arrival.job.queue for arrival in arrivals} - known)
    return [*queues, *(Queue(name) for name in names)]


def _beside(path: Path | None) -> Report | None:
    if path is None:
        return None
    try:
        return read_report(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _config(path: Path | None) -> Config:
    if path is None:
        return DEFAULT_CONFIG
    parsed = parse_config(path.read_text(encoding="utf-8"))
    if parsed.config is None:
        places = "; ".join(f"{p.path}: {p.code} {dict(p.params)}" for p in parsed.problems)
        raise ValueError(f"{path}: {places}")
    return parsed.config


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
