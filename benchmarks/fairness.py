"""How far queues are from exact shares, and what they cost: `python -m benchmarks.fairness`.

One JSON object a line:

- a contested cluster is filled until nothing more fits; every queue's distance from an exact
  weighted water-filling in fractions, which shares no code with the engine's, in tasks
- the time of one water-filling over 10,000 queues in 100 departments, and of the same through the
  whole engine, idle
"""

from __future__ import annotations

import argparse
import random
import statistics
from collections.abc import Sequence
from fractions import Fraction

from benchmarks._clusters import nodes, single
from benchmarks._machine import Clock, median_cpu_ms, show
from scheduling.engine.cycle import DEFAULT_CONFIG, Memo, plan
from scheduling.engine.fairness.water_filling import Claimant, fill_tree
from scheduling.engine.types import CPU, Queue, Role, Snapshot
from scheduling.engine.verify import check

TASK_CPU = 1000
REPEATS = 9
FIRST_SEED = 7


def exact(total: Fraction, weights: Sequence[int], demands: Sequence[int]) -> list[Fraction]:
    """Return the weighted water-filling in fractions: raise one level until all is given out."""
    given = [Fraction(0)] * len(weights)
    open_ones = set(range(len(weights)))
    left = total
    while open_ones:
        level = left / sum(weights[i] for i in open_ones)
        full = {i for i in open_ones if demands[i] <= level * weights[i]}
        if not full:
            for i in open_ones:
                given[i] = level * weights[i]
            break
        for i in full:
            given[i] = Fraction(demands[i])
            left -= demands[i]
        open_ones -= full
    return given


def distance(departments: int, teams: int, node_count: int) -> dict[str, object]:
    """Fill a cluster and compare each team's share with the exact one."""
    dice = random.Random(FIRST_SEED)
    weights = [dice.randint(1, 9) for _ in range(departments)]
    team_weights = [[dice.randint(1, 9) for _ in range(teams)] for _ in range(departments)]
    capacity = node_count * 96
    fair = capacity / (departments * teams)
    asks = [
        [dice.choice((0, round(fair / 2), round(2 * fair), round(4 * fair))) for _ in range(teams)]
        for _ in range(departments)
    ]
    tree = [Queue(f"dep{i:03}", weight=weights[i]) for i in range(departments)]
    tree += [
        Queue(f"team{i:03}-{j:03}", f"dep{i:03}", weight=team_weights[i][j])
        for i in range(departments)
        for j in range(teams)
    ]
    role = Role("task", {CPU: TASK_CPU}, 1, 1)
    jobs = tuple(
        single(f"job{i:03}-{j:03}-{k:05}", role, f"team{i:03}-{j:03}", created=float(k))
        for i in range(departments)
        for j in range(teams)
        for k in range(asks[i][j])
    )
    snapshot = Snapshot(0.0, nodes(node_count), tuple(tree), jobs)
    with Clock() as clock:
        result = plan(snapshot, DEFAULT_CONFIG)
    held: dict[str, int] = {}
    queue_of = {job.key: job.queue for job in jobs}
    for bind in result.binds:
        held[queue_of[bind.job]] = held.get(queue_of[bind.job], 0) + 1
    above = exact(Fraction(capacity), weights, [sum(row) for row in asks])
    distances = [
        abs(held.get(f"team{i:03}-{j:03}", 0) - share)
        for i in range(departments)
        for j, share in enumerate(exact(above[i], team_weights[i], asks[i]))
    ]
    value = float(max(distances))
    return {
        "benchmark": "largest distance of a queue from exact weighted water-filling, tasks",
        "value": round(value, 3),
        "reference": 1,
        "ratio": round(value, 3),
        "mean": round(float(statistics.mean(distances)), 3),
        "queues": departments * teams,
        "tasks": len(jobs),
        "bound": len(result.binds),
        "cpu_seconds": round(clock.cpu, 2),
        "violations": len(check(snapshot, result)),
    }


def filling(queue_count: int) -> dict[str, object]:
    """Time one exact water-filling over a tree."""
    dice = random.Random(FIRST_SEED)
    parents = max(queue_count // 100, 1)
    claimants = [Claimant(-1, 1 + i % 5, (0,), (2**60,), (0,)) for i in range(parents)]
    claimants += [
        Claimant(i % parents, 1 + i % 7, (0,), (2**60,), (dice.randint(0, 200_000),))
        for i in range(queue_count)
    ]
    total = (queue_count * 50_000,)
    deserved = fill_tree(claimants, total)
    value = median_cpu_ms(lambda: fill_tree(claimants, total), repeats=REPEATS)
    return {
        "benchmark": f"exact water-filling over {queue_count} queues, one resource, CPU ms",
        "value": round(value, 2),
        "reference": 5,
        "ratio": round(value / 5, 2),
        "given_out": sum(row[0] for row in deserved[:parents]),
    }


def idle(queue_count: int) -> dict[str, object]:
    """Time an idle cycle of the engine with so many queues, of which each holds one task."""
    parents = max(queue_count // 100, 1)
    machines = nodes(max(queue_count // 96, 1) + 1)
    tree = [Queue(f"dep{i:03}") for i in range(parents)]
    tree += [Queue(f"queue{i:05}", f"dep{i % parents:03}") for i in range(queue_count)]
    role = Role("task", {CPU: TASK_CPU}, 1, 1)
    jobs = tuple(
        single(f"job{i:05}", role, f"queue{i:05}", created=0.0, node=machines[i // 96].name)
        for i in range(queue_count)
    )
    snapshot = Snapshot(1.0, machines, tuple(tree), jobs)
    memo = Memo()
    result = plan(snapshot, DEFAULT_CONFIG, memo=memo)
    value = median_cpu_ms(lambda: plan(snapshot, DEFAULT_CONFIG, memo=memo), repeats=REPEATS)
    return {
        "benchmark": f"idle cycle with {queue_count} queues, CPU ms",
        "value": round(value, 1),
        "reference": 50,
        "ratio": round(value / 50, 2),
        "violations": len(check(snapshot, result)),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="a tenth of the size")
    options = parser.parse_args()
    scale = 10 if options.small else 1
    show(distance(20 // scale, 10, 300 // scale))
    show(filling(10_000 // scale))
    show(idle(10_000 // scale))


if __name__ == "__main__":
    main()
