"""The pytorch plugin: the variables that torch.distributed and torchrun read."""

from __future__ import annotations

from typing import ClassVar

from scheduling.spec.job_plugins.base import (
    EnvAddition,
    JobContext,
    JobPlugin,
    Options,
    PortAddition,
    RoleContext,
    TaskAdditions,
    WaitAddition,
)
from scheduling.spec.problems import Param, Problem


class PytorchOptions(Options):
    """Which roles are master and workers, and whether workers wait for the master."""

    master: str = "master"
    worker: str = "worker"
    port: int = 23456
    wait_master_enabled: bool = False
    wait_master_timeout: int = 300
    wait_master_image: str = "busybox:1.36.1"


class PytorchPlugin(JobPlugin[PytorchOptions]):
    """MASTER_ADDR, MASTER_PORT, WORLD_SIZE and RANK; the world counts tasks, not processes."""

    name: ClassVar[str] = "pytorch"
    requires: ClassVar[tuple[str, ...]] = ("svc",)
    options_type = PytorchOptions

    def problems(self, options: PytorchOptions, job: JobContext) -> list[Problem]:
        """Refuse more than one master: each would have rank 0."""
        master = job.role(options.master)
        if master is None or master.replicas <= 1:
            return []
        params: dict[str, Param] = {"role": master.name, "replicas": master.replicas}
        return [Problem("plugins.pytorch", "several_masters", params)]

    def for_task(
        self, options: PytorchOptions, job: JobContext, role: RoleContext, index: int
    ) -> TaskAdditions:
        """Give the variables to all roles, a rank to master and workers only."""
        master, worker = job.role(options.master), job.role(options.worker)
        if master is None:
            return TaskAdditions()
        host, port = job.host(master, 0), job.port(master, 0, options.port)
        world = master.replicas + (worker.replicas if worker else 0)
        env = {"MASTER_ADDR": host, "MASTER_PORT": str(port), "WORLD_SIZE": str(world)}
        if role.name == options.master:
            env["RANK"] = "0"
        elif role.name == options.worker:
            env["RANK"] = str(index + 1)
        waits = options.wait_master_enabled and role.name == options.worker
        wait = WaitAddition(
            "wait-for-master",
            options.wait_master_image,
            host,
            port,
            options.wait_master_timeout,
        )
        return TaskAdditions(
            env=tuple(EnvAddition(name, value) for name, value in env.items()),
            ports=(PortAddition("pytorchjob-port", options.port),),
            waits=(wait,) if waits else (),
        )
