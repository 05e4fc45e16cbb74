"""The sums of a day, and the command that prints them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from scheduling.engine.types import CPU, GPU, PODS, Node, Queue
from scheduling.simulator.__main__ import main
from scheduling.simulator.figures import charts
from scheduling.simulator.page import page
from scheduling.simulator.replay import Arrival, Settings, World, fragmentation, replay
from scheduling.simulator.report import jain, read_report, report, spread
from scheduling.simulator.trace import gang
from scheduling.spec.quantities import write_duration

AMOUNTS = {CPU: 64_000, GPU: 8000, PODS: 110_000}


def half_used() -> tuple[World, list[Arrival]]:
    request = {CPU: 1000, GPU: 4000, PODS: 1000}
    jobs = [
        gang("a", queue="q", request=request, tasks=1, arrives_at=0),
        gang("b", queue="p", request=request, tasks=1, arrives_at=10),
    ]
    world = World((Node("n", AMOUNTS),), (Queue("p"), Queue("q")))
    return world, [Arrival(jobs[0], 20), Arrival(jobs[1], 10)]


def test_a_report_sums_up_waits_use_and_slowdown() -> None:
    """4 of 8 GPUs for 10 s, then all for 10 s: three quarters; nobody waited."""
    world, arrivals = half_used()

    result = report(replay(world, arrivals, settings=Settings(cycle_seconds=1)))

    assert result.utilisation[GPU] == pytest.approx(0.75)
    assert result.makespan_seconds == 20
    assert (result.wait.mean, result.completion.most, result.slowdown) == (0, 20, 1)
    assert [(q.queue, q.jobs, q.ended) for q in result.queues] == [("p", 1, 1), ("q", 1, 1)]
    assert result.jain == 1
    assert json.loads(json.dumps(result.as_json()))["ended"] == 2


def test_a_queue_that_waits_under_its_deserved_amount_is_reported() -> None:
    """While others that cannot be moved hold everything, the shortfall is the share in full."""
    request = {CPU: 1000, GPU: 8000, PODS: 1000}
    world = World(
        (Node("n", AMOUNTS),), (Queue("p", reclaimable=False), Queue("q", min={GPU: 4000}))
    )
    arrivals = [
        Arrival(gang("a", queue="p", request=request, tasks=1, arrives_at=0), 20),
        Arrival(gang("b", queue="q", request=request, tasks=1, arrives_at=5), 20),
    ]

    result = report(replay(world, arrivals, settings=Settings(cycle_seconds=1)))

    (late,) = [q for q in result.queues if q.queue == "q"]
    assert late.wait.mean == 15
    assert late.largest_shortfall[GPU] >= 4000


def test_spreads_and_indexes_of_nothing_are_none() -> None:
    """Unknown is not zero."""
    assert spread([]).mean is None
    assert jain([]) is None
    assert fragmentation([Node("n", {CPU: 1000})], {}) is None


def test_spreads_go_by_nearest_rank() -> None:
    """Of 1 to 20 the median is 10 and the 95th percentile 19."""
    found = spread(range(1, 21))

    assert (found.mean, found.p50, found.p95, found.most) == (10.5, 10, 19, 20)


def test_jain_is_one_for_equals_and_one_nth_for_one_taker() -> None:
    """The two ends of the index."""
    assert jain([3, 3, 3]) == 1
    assert jain([5, 0, 0, 0]) == 0.25


def test_fragmentation_counts_free_gpus_beside_taken_ones() -> None:
    """Of 12 free GPUs 4 lie on a machine that is partly taken."""
    nodes = [Node("n1", AMOUNTS), Node("n2", AMOUNTS), Node("n3", AMOUNTS)]

    assert fragmentation(nodes, {"n1": 4000, "n3": 8000}) == pytest.approx(1 / 3)


def test_the_page_holds_all_it_needs_and_escapes_names() -> None:
    """A queue's name cannot leave its cell or its script."""
    world, arrivals = half_used()
    day = replay(world, arrivals)
    text = page(day, report(day), title="</script><b>", plotly="/* library */")

    assert "&lt;/script&gt;&lt;b&gt;" in text
    assert "</script><b>" not in text
    assert "/* library */" in text
    assert "http://" not in text.replace("http://www.w3.org", "")


def test_a_replay_is_compared_with_another(tmp_path: Path) -> None:
    """The page shows the sums of both, as they were written and read again."""
    world, arrivals = half_used()
    day = replay(world, arrivals)
    other = replay(world, arrivals[:1])
    written = json.dumps(report(other).as_json())

    text = page(day, report(day), title="two", plotly="", beside=read_report(written))

    assert "<td>jobs that ended</td><td>2 of 2</td><td>1 of 1</td>" in text
    spans = (write_duration(round(report(one).makespan_seconds or 0)) for one in (day, other))
    assert "<td>first arrival to last end</td><td>{}</td><td>{}</td>".format(*spans) in text
    assert "held of GPUs" in text
    assert "held of memory" not in text  # nobody asked for any


def test_queues_beyond_the_colours_share_a_line() -> None:
    """A chart of a thousand queues stays readable; the largest ones have lines of their own."""
    request = {CPU: 1000, PODS: 1000}
    arrivals = [
        Arrival(gang(f"j{i}", queue=f"q{i:02}", request=request, tasks=1, arrives_at=0), 10 + i)
        for i in range(20)
    ]
    day = replay(
        World((Node("n", AMOUNTS),), tuple(Queue(f"q{i:02}") for i in range(20))), arrivals
    )

    held = {chart.name: chart.figure for chart in charts(day)}["allocated"]

    assert held is not None
    traces: Any = held["data"]
    assert [trace["name"] for trace in traces] == [
        *(f"q{i}" for i in range(19, 12, -1)),
        "other queues",
        "capacity",
    ]
    assert sum(trace["y"][0] for trace in traces[:-1]) == 20


def test_nothing_to_draw_is_said_and_not_drawn() -> None:
    """Where nobody waited there is a sentence instead of an empty chart."""
    world, arrivals = half_used()
    day = replay(world, arrivals)

    drawn = {chart.name: chart.figure for chart in charts(day)}

    assert drawn["waiting"] is None
    assert drawn["completions"] is not None
    assert "Nothing to draw" in page(day, report(day), title="quiet", plotly="")


def test_the_command_replays_a_packed_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Trace, tree, configuration and page go in and out as files."""
    rows = [
        {"job": f"j{i}", "queue": "q", "submitted_at": i, "seconds": 5, "tasks": 1}
        | {"request": {"cpu": 1000}}
        for i in range(3)
    ]
    path = tmp_path / "day.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(json.dumps(row) for row in rows).encode()))
    (tmp_path / "queues.json").write_text('{"top": {}, "q": {"parent": "top"}}')
    (tmp_path / "scheduler.conf").write_text(
        'actions: "enqueue, allocate"\ntiers:\n- plugins:\n  - name: gang\n  - name: predicates\n'
    )
    (tmp_path / "library.js").write_text("// nothing")

    status = main(
        [
            str(path),
            *("--nodes", "1", "--queues", str(tmp_path / "queues.json"), "--limit", "2"),
            *("--config", str(tmp_path / "scheduler.conf"), "--verify", "--time-limits", "2"),
            *("--page", str(tmp_path / "day.html"), "--plotly", str(tmp_path / "library.js")),
        ]
    )

    assert status == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["jobs"], printed["ended"]) == (2, 2)
    assert "<title>day.jsonl.gz</title>" in (tmp_path / "day.html").read_text()


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("trace.jsonl", '{"job": "a"}', "line 1: queue is missing"),
        ("scheduler.conf", "actions: dance", "unknown_action"),
        ("other.json", '{"jobs": 3}', "other.json: not a report: ended: Field required"),
    ],
)
def test_the_command_names_what_it_cannot_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str, words: str
) -> None:
    """A broken trace or configuration ends with status 2 and one line."""
    good = {"job": "j", "queue": "q", "submitted_at": 0, "seconds": 5, "tasks": 1, "request": {}}
    (tmp_path / "trace.jsonl").write_text(json.dumps(good))
    (tmp_path / "scheduler.conf").write_text('actions: "allocate"\ntiers:\n- plugins: []\n')
    (tmp_path / name).write_text(text)

    options = ["--config", str(tmp_path / "scheduler.conf")]
    if name == "other.json":
        options += ["--beside", str(tmp_path / name)]
    status = main([str(tmp_path / "trace.jsonl"), *options])

    assert status == 2
    assert words in capsys.readouterr().err
