"""The whole system on the database of the tests: loops, gateway, one agent, and what to ask it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self, TypeVar

from django.db import transaction

from scheduling.domain import clock, jobs, queues
from scheduling.domain.launches import scheduler_scope
from scheduling.domain.queue_changes import QueueNumbers
from scheduling.models import Attempt, Job, Node, Queue
from scheduling.models.attempt import LIVE_STATES
from scheduling.models.job import FINISHED_PHASES
from scheduling.spec.job_spec import GPU_RESOURCE, JobSpec
from scheduling.spec.parse import Format, parse
from tenants.domain import org
from tenants.models import OrgUnitKind
from tests.process.agent_process import AgentUnderTest
from tests.process.fake_gateway import wait_for
from tests.process.gateway_process import GatewayProcess, Installed
from tests.process.loop_processes import Loops

T = TypeVar("T")
PATIENCE_SECONDS = 90.0  # a busy machine is slow, not wrong


class WholeSystem:
    """An installation of one node with default settings, its processes started once."""

    def __init__(self, *arguments: str, config: str = "") -> None:
        self.installed = Installed()
        self.agent = AgentUnderTest(*arguments, config=config)
        self.loops = Loops(workers=1)
        self._gateway = GatewayProcess()

    def __enter__(self) -> Self:
        self._gateway.__enter__()
        token = self.agent.data / "token"
        token.write_text(self.installed.join_token())
        self.agent.join_with(self._gateway.url, token)
        self.agent.start()
        self.loops.__enter__()
        self.wait_for(lambda: Node.objects.filter(state="Ready").exists())
        scope = scheduler_scope(self.installed.installation.cluster.id)
        self.wait_for(lambda: self.loops.is_held(scope))
        return self

    def __exit__(self, *_: object) -> None:
        self.loops.__exit__()
        self.agent.clean_up()
        self._gateway.__exit__()

    def wait_for(self, condition: Callable[[], T | None]) -> T:
        """Return the condition's first true value; a failure shows what the processes said."""
        try:
            return wait_for(condition, PATIENCE_SECONDS)
        except AssertionError as error:
            states = list(Job.objects.values_list("name", "phase", "reason_code", "reason_params"))
            said = (self.loops.logs(), self._gateway.log(), self.agent.log())
            raise AssertionError("\n".join([str(error), str(states), *said])) from error

    def wait_for_gpus(self, count: int) -> None:
        """Wait until the node offers exactly so many GPUs."""
        amounts = {f"allocatable__{GPU_RESOURCE}": 1000 * count}
        ready = Node.objects.filter(state="Ready", **amounts)
        self.wait_for(ready.exists)

    # --- units and queues -------------------------------------------------------------------------

    def tenant(self, name: str, **numbers: Any) -> Queue:
        """Make a tenant with a queue of its own under the root."""
        root = self.installed.installation.root
        return self._unit_with_queue(None, OrgUnitKind.TENANT, root, name, numbers)

    def unit(self, above: Queue, name: str, **numbers: Any) -> Queue:
        """Make a unit below that of a queue, with a queue of its own."""
        return self._unit_with_queue(above.unit_id, OrgUnitKind.TEAM, above, name, numbers)

    def _unit_with_queue(
        self, parent_unit: Any, kind: OrgUnitKind, above: Queue, name: str, numbers: dict[str, Any]
    ) -> Queue:
        actor, now = self.installed.actor, clock.database_now()
        unit = org.create_unit(actor=actor, parent_id=parent_unit, name=name, kind=kind, now=now)
        return queues.create_queue(
            actor=actor,
            parent_id=above.id,
            unit_id=unit.id,
            name=name,
            numbers=QueueNumbers(**numbers),
            now=now,
        )

    # --- jobs -------------------------------------------------------------------------------------

    def submit(
        self,
        name: str,
        *,
        queue: Queue,
        tasks: int,
        at_least: int | None = None,
        gpus: int = 1,
        seconds: float = 3600,
        **more: Any,
    ) -> Job:
        """Submit a job of so many tasks; it pretends to run for so many seconds."""
        needed = tasks if at_least is None else at_least
        spec = parse(
            {
                "name": name,
                "queue": queue.name,
                "min_available": needed,
                "running_estimate_seconds": seconds,
                "roles": [
                    {
                        "name": "worker",
                        "replicas": tasks,
                        "min_available": needed,
                        "command": ["train"],
                        "cpu_milli": 100,
                        "memory_bytes": 64 << 20,
                        "gpu_milli": 1000 * gpus,
                    }
                ],
                **more,
            },
            form=Format.JSON,
        )
        assert isinstance(spec, JobSpec), spec
        return jobs.submit_job(actor=self.installed.actor, spec=spec, now=clock.database_now())

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Let no cycle see one of several submissions without the others."""
        with transaction.atomic():
            yield

    def cancel(self, job: Job) -> None:
        """Cancel a job, and wait until nothing of it is left."""
        jobs.cancel_job(actor=self.installed.actor, job_id=job.id, now=clock.database_now())
        self.wait_for(lambda: Job.objects.filter(id=job.id, phase__in=FINISHED_PHASES).exists())

    def cancel_all(self) -> None:
        """Leave the node empty."""
        for job in Job.objects.exclude(phase__in=FINISHED_PHASES):
            jobs.cancel_job(actor=self.installed.actor, job_id=job.id, now=clock.database_now())
        self.wait_for(
            lambda: (
                not (
                    Job.objects.exclude(phase__in=FINISHED_PHASES).exists()
                    or Attempt.objects.filter(state__in=LIVE_STATES).exists()
                )
            )
        )

    def wait_for_running(self, expected: Mapping[Job, int]) -> None:
        """Wait until just so many tasks of each job run and none of them is starting or leaving."""
        self.wait_for(lambda: self._is_settled(expected))

    def _is_settled(self, expected: Mapping[Job, int]) -> bool:
        now = Job.objects.in_bulk([job.id for job in expected])
        return all(
            (now[job.id].tasks_running, now[job.id].tasks_starting, now[job.id].tasks_stopping)
            == (count, 0, 0)
            for job, count in expected.items()
        )
