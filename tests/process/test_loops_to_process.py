"""The straight way on real processes: submission, Celery cycle, gateway, agent, process, rows."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from functools import partial

import pytest

from scheduling.domain import clock, invariants, jobs, logs
from scheduling.models import Attempt, Job, Node
from scheduling.spec.job_spec import JobSpec
from scheduling.spec.parse import Format, parse
from tests.process.agent_process import AgentUnderTest
from tests.process.fake_gateway import wait_for
from tests.process.gateway_process import GatewayProcess, Installed
from tests.process.loop_processes import Loops

pytestmark = pytest.mark.django_db(transaction=True)

MEET = """
import os, socket, time
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
where = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    server = socket.create_server(where)
    for _ in range(world - 1):
        server.accept()[0].sendall(b"hello")
else:
    while True:  # on a busy machine the master may start long after; the test's patience decides
        try:
            link = socket.create_connection(where)
            break
        except OSError:
            time.sleep(0.05)
    assert link.recv(5) == b"hello"
print("rank", rank, "of", world, "met", flush=True)
"""


@pytest.fixture
def installed() -> Installed:
    return Installed()


@pytest.fixture
def agent(installed: Installed) -> Iterator[AgentUnderTest]:
    with GatewayProcess() as gateway:
        running = AgentUnderTest()
        token = running.data / "token"
        token.write_text(installed.join_token())
        running.join_with(gateway.url, token)
        running.start()
        wait_for(lambda: Node.objects.filter(state="Ready").first(), 40)
        yield running
        running.clean_up()


def ended(job: Job) -> Job | None:
    return Job.objects.filter(id=job.id, phase__in=("Completed", "Failed", "Terminated")).first()


def how_they_ended(both: list[Job]) -> list[tuple[str, object]]:
    """What each attempt of the jobs says of its end, for whoever reads a failure."""
    attempts = Attempt.objects.filter(job__in=both).order_by("job", "task__role__position")
    return [
        (
            f"{one.state} {one.reason_code} {one.exit_code} {one.ports}",
            logs.read_log(attempt=one, stream="stderr").data,
        )
        for one in attempts
    ]


def submit_training(installed: Installed, name: str) -> Job:
    role = {"command": ["python3", "-c", MEET], "cpu_milli": 100, "memory_bytes": 64 << 20}
    parsed = parse(
        {
            "name": name,
            "queue": "default",
            "plugins": {"pytorch": {}},
            "roles": [
                {"name": "master", "replicas": 1, **role},
                {"name": "worker", "replicas": 3, **role},
            ],
        },
        form=Format.JSON,
    )
    assert isinstance(parsed, JobSpec), parsed
    return jobs.submit_job(actor=installed.actor, spec=parsed, now=clock.database_now())


def test_data_parallel_jobs_meet_and_complete(installed: Installed, agent: AgentUnderTest) -> None:
    """Two jobs of four processes at once find their own master each, and complete."""
    del agent
    with Loops():
        both = [submit_training(installed, name) for name in ("one", "two")]
        done = [wait_for(partial(ended, job), 180) for job in both]

        assert [job.phase for job in done] == ["Completed", "Completed"], how_they_ended(both)
    for job in both:
        attempts = Attempt.objects.filter(job=job).order_by("task__role__position", "task__index")
        said = [logs.read_log(attempt=one, stream="stdout").data for one in attempts]
        assert said == [f"rank {rank} of 4 met\n".encode() for rank in range(4)]
    assert invariants.check() == []


def test_agent_killed_and_back_finishes_the_job(
    installed: Installed, agent: AgentUnderTest
) -> None:
    """A task outlives its agent; the one that comes back reports its end, nothing ran twice."""
    with Loops() as loops:
        job = installed.submit("outlives", ["sh", "-c", "sleep 4; echo done"])
        wait_for(lambda: Attempt.objects.filter(job=job, state="Running").first(), 60)
        agent.kill(signal.SIGKILL)
        agent.start()
        done = wait_for(lambda: ended(job), 60)

        assert done.phase == "Completed", loops.logs()
    assert Attempt.objects.filter(job=job).count() == 1

    assert invariants.check() == []
