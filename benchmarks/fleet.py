"""A fleet of simulated nodes, from nothing to all Ready: `python -m benchmarks fleet`.

One process stands for all of them. Prints JSON objects, one a line: how long joining took and how
long until every node was Ready, with the CPU time of gateway and agent, then what they use at rest.
"""

from __future__ import annotations

import argparse
import json
import os
import time

from benchmarks._installation import running
from scheduling.models import Node

SHAPE = "gpus=8,cpu=64,memory=512Gi"
REFERENCE_SECONDS = 20.0
REST_SECONDS = 20.0


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--alone", action="store_true", help="without web, loops and beat")
    given = parser.parse_args()
    with running(count=given.nodes, shape=SHAPE, with_loops=not given.alone) as here:
        row = {
            "benchmark": f"{given.nodes} simulated nodes joined and Ready, s",
            "value": here.ready_seconds,
            "reference": REFERENCE_SECONDS,
            "ratio": round(here.ready_seconds / REFERENCE_SECONDS, 3),
            "join_seconds": here.join_seconds,
            "gateway_cpu_seconds": here.cpu_seconds("gateway"),
            "agent_cpu_seconds": here.cpu_seconds("agent"),
            "load_average": round(os.getloadavg()[0], 1),
        }
        print(json.dumps(row), flush=True)
        before = {name: here.cpu_seconds(name) for name in ("gateway", "agent")}
        time.sleep(REST_SECONDS)
        used = {name: here.cpu_seconds(name) - before[name] for name in before}
        ready = Node.objects.filter(state="Ready")
        row = {
            "benchmark": "the same at rest: share of one core, %",
            **{name: round(100 * value / REST_SECONDS, 1) for name, value in used.items()},
            "ready": ready.count(),
            "sessions": sum(ready.values_list("session_epoch", flat=True)),
        }
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
