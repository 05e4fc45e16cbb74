"""The mpi plugin: the list of hosts for mpiexec, on the launcher."""

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
)
from scheduling.spec.problems import Problem


class MpiOptions(Options):
    """Which role launches and which ones work."""

    master: str = "master"
    worker: str = "worker"
    port: int = 22


class MpiPlugin(JobPlugin[MpiOptions]):
    """MPI_HOST names the workers, without slots; every task opens the port.

    A launcher without the workers' role gets neither: it has nobody to reach.
    """

    name: ClassVar[str] = "mpi"
    requires: ClassVar[tuple[str, ...]] = ("svc", "ssh")
    options_type = MpiOptions

    def problems(self, options: MpiOptions, job: JobContext) -> list[Problem]:
        """Refuse a job without the launcher's role."""
        if job.role(options.master) is not None:
            return []
        return [Problem("plugins.mpi", "mpi_master_missing", {"master": options.master})]

    def for_task(
        self, options: MpiOptions, job: JobContext, role: RoleContext, index: int
    ) -> TaskAdditions:
        """Give the port to all tasks and the hosts to the launcher's."""
        del index
        env: tuple[EnvAddition, ...] = ()
        if role.name == options.master:
            worker = job.role(options.worker)
            if worker is None:
                return TaskAdditions()
            hosts = ",".join(job.hosts(worker))
            env = (EnvAddition("MPI_HOST", hosts, in_init=True),)
        port = PortAddition("mpijob-port", options.port, in_init=True)
        return TaskAdditions(env=env, ports=(port,))
