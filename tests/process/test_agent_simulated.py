"""Simulated nodes: one process stands for many, and all but the processes is real."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.process.agent_process import AgentUnderTest
from tests.process.fake_gateway import FakeGateway, wait_for
from worker.agent.identity import load


@pytest.fixture
def gateway() -> Iterator[FakeGateway]:
    with FakeGateway() as running:
        yield running


@pytest.fixture
def agent(gateway: FakeGateway) -> Iterator[AgentUnderTest]:
    running = AgentUnderTest("--simulate", "gpus=8,cpu=64,memory=512Gi").belongs_to(gateway)
    running.start()
    yield running
    running.clean_up()


def test_shape_is_reported(gateway: FakeGateway, agent: AgentUnderTest) -> None:
    """The Hello has the pretended hardware and says that it is pretended."""
    hello = gateway.hellos[0]

    assert (hello.is_simulated, hello.cpu_milli, hello.memory_bytes) == (True, 64_000, 512 << 30)
    assert [device.numa_node for device in hello.devices] == [0] * 4 + [1] * 4
    assert hello.sockets == 2
    assert load(agent.data).node == hello.node


def test_pretended_process_ends_as_told(gateway: FakeGateway, agent: AgentUnderTest) -> None:
    """Time and exit code are the job's to choose; no program is started."""
    gateway.launch(
        "a1",
        ["no-such-program"],
        simulate_seconds=0.2,
        environment={"TERRACE_SIMULATE_EXIT_CODE": "3"},
    )

    ended = gateway.wait_for_state("a1", "Exited")

    assert (ended.exit_code, ended.reason) == (3, "")
    assert gateway.states("a1") == ["Starting", "Running", "Exited"]
    assert agent.processes_of("a1") == {}


def test_shape_says_how_long_tasks_run(gateway: FakeGateway) -> None:
    """Where a job does not say how long it takes, as with a manifest taken as it is."""
    agent = AgentUnderTest("--simulate", "cpu=4,seconds=0.1").belongs_to(gateway)
    try:
        agent.start()
        gateway.launch("a1", ["no-such-program"])

        assert gateway.wait_for_state("a1", "Exited").exit_code == 0
    finally:
        agent.clean_up()


def test_pretended_process_goes_on_without_agent(
    gateway: FakeGateway, agent: AgentUnderTest
) -> None:
    """A restarted agent finds it where it would be by now."""
    gateway.launch("a1", ["x"], simulate_seconds=1.0)
    gateway.launch("a2", ["x"], simulate_seconds=600.0)
    gateway.wait_for_state("a2", "Running")

    agent.kill()
    agent.start()

    assert gateway.wait_for_state("a1", "Exited").exit_code == 0
    held = {item.attempt: item.state for item in gateway.hellos[-1].attempts}
    assert held["a2"] == "Running"
    gateway.stop("a2", grace_seconds=5, reason="Cancelled")
    ended = gateway.wait_for_state("a2", "Exited")
    assert (ended.reason, ended.signal) == ("Cancelled", 15)


def test_lease_ends_pretended_processes_too(gateway: FakeGateway, agent: AgentUnderTest) -> None:
    """Without contact a pretended process ends like a real one."""
    gateway.lease_seconds = 0.6
    gateway.disconnect()
    gateway.launch("a1", ["x"], simulate_seconds=600.0)
    gateway.wait_for_state("a1", "Running")

    gateway.is_answering = False
    record = wait_for(lambda: agent.record("a1", "exit.json"))
    gateway.is_answering = True

    assert record["reason"] == "LeaseLapsed"
    assert gateway.wait_for_state("a1", "Exited").reason == "LeaseLapsed"


def test_usage_is_plausible(gateway: FakeGateway, agent: AgentUnderTest) -> None:
    """GPUs that are held are busy, the others are idle."""
    busy = gateway.hellos[0].devices[0].uuid
    gateway.launch("a1", ["x"], simulate_seconds=600.0, devices=[busy], cpu_milli=4_000)
    gateway.wait_for_state("a1", "Running")

    samples = wait_for(
        lambda: next(
            (
                report.usage
                for report in gateway.reports
                if any(sample.subject == "a1" for sample in report.usage)
            ),
            None,
        )
    )

    loads = {sample.subject: sample.gpu_percent for sample in samples}
    assert (loads.pop(f"gpu:{busy}") or 0) >= 70
    del loads["a1"], loads["node"]
    assert set(loads.values()) == {0.0}
