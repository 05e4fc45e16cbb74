"""The trace that the demo replays: a folder with jobs and the sizes of virtual clusters."""

from __future__ import annotations

import csv
import gzip
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from scheduling.simulator.replay import Arrival
from scheduling.simulator.trace import TraceError, read_philly

JOBS = ("chronus_philly_SLO.csv.gz", "jobs.csv")
CLUSTERS = ("philly_vc_nodes.csv", "clusters.csv")


@dataclass(frozen=True, slots=True)
class VirtualCluster:
    """A team of the company, and how many servers it had: its weight."""

    name: str
    servers: int

    @property
    def queue(self) -> str:
        """Return the queue's name, which is also the owner's in the trace with a dash."""
        return f"vc-{self.name}"


def read_clusters(folder: Path) -> list[VirtualCluster]:
    """Return the virtual clusters, the largest first.

    Raises:
        TraceError: there is no such file, or a row cannot be read.
    """
    with _find(folder, CLUSTERS).open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    try:
        found = [VirtualCluster(row["vc"], int(row["node num"])) for row in rows]
    except (KeyError, TypeError, ValueError) as error:
        raise TraceError(f"{folder}: the columns `vc` and `node num` are expected") from error
    return sorted(found, key=lambda one: (-one.servers, one.name))


def read_jobs(folder: Path, *, most: int) -> list[Arrival]:
    """Return the first jobs of the trace in the order in which they came.

    Raises:
        TraceError: there is no such file, or a row cannot be read.
    """
    path = _find(folder, JOBS)
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
        arrivals = sorted(read_philly(lines), key=lambda one: one.job.created_at)
    return list(islice(arrivals, most))


def _find(folder: Path, names: tuple[str, ...]) -> Path:
    for place in (folder, folder / "philly"):
        for name in names:
            if (place / name).is_file():
                return place / name
    raise TraceError(f"{folder} has none of {', '.join(names)}, nor has its folder `philly`")
