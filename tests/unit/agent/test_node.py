"""A node's memory: commands once, reports until acknowledged, nothing lost over a restart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from worker.agent.folders import NodeFolders
from worker.agent.node import FRAMES_IN_FLIGHT, Node
from worker.agent.simulated import Shape, SimulatedMachine, SimulateError, parse_shape
from worker.protocol import Launch, Report, Stop
from worker.shim import linux

LEASE = 3_600.0


def make_node(folder: Path) -> Node:
    machine = SimulatedMachine(shape=Shape(gpus=2), node="n")
    machine.renew_lease(linux.boot_seconds() + LEASE)
    node = Node(
        name="n", folders=NodeFolders(folder, folder / "jobs"), machine=machine, runtimes=[]
    )
    node.load()
    node.begin_session("s")
    return node


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    made = make_node(tmp_path)
    yield made
    await made.machine.close()


def launch(attempt: str = "a", *, epoch: int = 1, seconds: float = LEASE) -> Launch:
    return Launch(
        command_id=1,
        epoch=epoch,
        attempt=attempt,
        job="j",
        task="t",
        tenant="o",
        argv=["x"],
        runtime="host",
        simulate_seconds=seconds,
    )


def states(report: Report | None) -> list[tuple[str, str]]:
    assert report is not None
    return [(item.attempt, item.state) for item in report.attempts]


async def test_reports_are_numbered_and_sent_once(node: Node) -> None:
    """What was sent is not sent again while it waits for its acknowledgement."""
    node.launch(launch("a"))
    first = node.next_report()
    node.launch(launch("b"))
    second = node.next_report()

    assert (states(first), states(second)) == (
        [("a", "Starting"), ("a", "Running")],
        [("b", "Starting"), ("b", "Running")],
    )
    assert [report.seq for report in (first, second) if report is not None] == [1, 2]
    assert node.next_report() is None


async def test_new_session_repeats_what_was_not_acknowledged(node: Node) -> None:
    """After a broken link the acknowledged part stays out, the rest comes again, from 1."""
    node.launch(launch("a"))
    node.next_report()
    node.launch(launch("b"))
    node.next_report()
    node.acknowledge(1)

    node.begin_session("s2")
    again = node.next_report()

    assert states(again) == [("b", "Starting"), ("b", "Running")]
    assert again is not None
    assert (again.session, again.seq) == ("s2", 1)


async def test_acknowledgement_of_an_older_session(node: Node) -> None:
    """A number that was never sent in this session confirms only what was."""
    node.launch(launch("a"))
    node.next_report()

    node.acknowledge(99)
    node.begin_session("s2")

    assert node.next_report() is None


async def test_restart_repeats_what_was_not_acknowledged(node: Node, tmp_path: Path) -> None:
    """A new agent on the same folder reports what the old one had not heard confirmed."""
    node.launch(launch("a", seconds=0.0))
    node.launch(launch("b"))
    await asyncio.sleep(0)
    node.next_report()
    await node.machine.close()

    successor = make_node(tmp_path)
    report = successor.next_report()
    await successor.machine.close()

    held = {item.attempt: item.state for item in successor.hello().attempts}
    assert held == {"a": "Running", "b": "Running"}
    assert states(report) == [("a", "Running"), ("b", "Running")]


async def test_too_much_unacknowledged(node: Node) -> None:
    """A gateway that confirms nothing gets no more than so many frames."""
    for number in range(FRAMES_IN_FLIGHT + 5):
        node.launch(launch(f"a{number}"))
        node.next_report()

    assert node.next_report() is None
    node.acknowledge(1)
    assert node.next_report() is not None


async def test_stale_epoch(node: Node) -> None:
    """An older scheduler is refused; a user's order is not a scheduler's."""
    node.launch(launch("a", epoch=5))

    refused = node.launch(launch("b", epoch=4))
    stale = node.stop(Stop(2, epoch=4, attempt="a", grace_seconds=0))
    taken = node.stop(Stop(3, epoch=0, attempt="a", grace_seconds=0))

    assert (refused.refused, stale.refused, taken.refused) == ("StaleEpoch", "StaleEpoch", "")
    assert node.hello().highest_epoch == 5


async def test_leaving_starts_nothing(node: Node) -> None:
    """Once told to end, a node takes no more launches."""
    node.shut_down()

    assert node.launch(launch("a")).refused == "NodeShutdown"
    assert node.is_quiet()


async def test_usage_and_devices(node: Node) -> None:
    """A measurement covers node, devices and attempts; unchanged devices are not repeated."""
    node.launch(launch("a"))
    await node.measure()

    report = node.next_report()

    assert report is not None
    subjects = [sample.subject for sample in report.usage]
    assert subjects == ["a", "node", "gpu:SIM-n-0", "gpu:SIM-n-1"]
    assert report.devices == []


def test_shape() -> None:
    """The shape of a pretended node is read from one word."""
    shape = parse_shape("gpus=8,cpu=64,memory=512Gi")

    assert shape == Shape(gpus=8, cpu=64, memory_bytes=512 << 30)


@pytest.mark.parametrize("text", ["gpus", "gpus=x", "memory=5Q", "memory=", "fans=3", "cpu=-1"])
def test_shape_that_is_none(text: str) -> None:
    """A wrong shape is named, with an example."""
    with pytest.raises(SimulateError, match="example"):
        parse_shape(text)
