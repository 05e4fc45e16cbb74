"""The ray plugin: starts a Ray head and its workers, and a service in front of the head."""

from __future__ import annotations

from typing import ClassVar

from scheduling.spec.job_plugins.base import (
    JobAdditions,
    JobContext,
    JobPlugin,
    Options,
    PortAddition,
    RoleContext,
    ServiceAddition,
    TaskAdditions,
)
from scheduling.spec.problems import Problem


class RayOptions(Options):
    """Which roles and containers are head and workers, and the head's ports."""

    FLAGS: ClassVar = {
        "head_container": "headContainer",
        "worker_container": "workerContainer",
        "dashboard_port": "dashboardPort",
        "client_port": "clientPort",
    }
    head: str = "head"
    worker: str = "worker"
    head_container: str = "head"
    worker_container: str = "worker"
    port: int = 6379
    dashboard_port: int = 8265
    client_port: int = 10001


class RayPlugin(JobPlugin[RayOptions]):
    """Replaces the commands of head and workers; the job ends only when somebody ends it."""

    name: ClassVar[str] = "ray"
    requires: ClassVar[tuple[str, ...]] = ("svc",)
    options_type = RayOptions

    def problems(self, options: RayOptions, job: JobContext) -> list[Problem]:
        """Refuse a job without head."""
        if job.role(options.head) is not None:
            return []
        return [Problem("plugins.ray", "ray_head_missing", {"head": options.head})]

    def for_task(
        self, options: RayOptions, job: JobContext, role: RoleContext, index: int
    ) -> TaskAdditions:
        """Give start command and ports to the head, a start command to workers."""
        del index
        head = job.role(options.head)
        if head is None:
            return TaskAdditions()
        if role.name == options.head:
            start = (
                f"ray start --head --block --dashboard-host=0.0.0.0 --port={options.port}"
                f" --dashboard-port={options.dashboard_port}"
                f" --ray-client-server-port={options.client_port}"
            )
            return TaskAdditions(
                commands={options.head_container: ("sh", "-c", start)},
                ports=tuple(
                    PortAddition(name, number, container=options.head_container)
                    for name, number in _ports(options).items()
                ),
            )
        if role.name == options.worker:
            address = f"{job.host(head, 0)}:{job.port(head, 0, options.port)}"
            start = f"ray start --block --address={address}"
            return TaskAdditions(commands={options.worker_container: ("sh", "-c", start)})
        return TaskAdditions()

    def for_job(self, options: RayOptions, job: JobContext) -> JobAdditions:
        """Give the service in front of the head."""
        service = ServiceAddition(
            f"{job.name}-head-svc", headless=False, role=options.head, ports=_ports(options)
        )
        return JobAdditions(services=(service,))


def _ports(options: RayOptions) -> dict[str, int]:
    return {
        "gcs": options.port,
        "dashboard": options.dashboard_port,
        "client": options.client_port,
    }
