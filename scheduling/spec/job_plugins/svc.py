"""The svc plugin: host names, host files and host variables of all roles."""

from __future__ import annotations

from typing import ClassVar

from scheduling.spec.job_plugins.base import (
    EnvAddition,
    FileAddition,
    JobAdditions,
    JobContext,
    JobPlugin,
    MountAddition,
    Options,
    RoleContext,
    ServiceAddition,
    TaskAdditions,
)

HOSTS_FOLDER = "/etc/volcano"
LONGEST_VARIABLE = 120_000
"""Linux starts no process with a variable above 128 KiB; a longer list stands in the files only."""


class SvcOptions(Options):
    """How far the names reach."""

    publish_not_ready_addresses: bool = False
    disable_network_policy: bool = False
    inject_hosts_env: bool = True


class SvcPlugin(JobPlugin[SvcOptions]):
    """Names every task `<job>-<role>-<index>.<job>` and lists them by role."""

    name: ClassVar[str] = "svc"
    options_type = SvcOptions

    def for_task(
        self, options: SvcOptions, job: JobContext, role: RoleContext, index: int
    ) -> TaskAdditions:
        """Give host name, the files under /etc/volcano and the VC_ variables."""
        files = _files(job)
        env = (
            tuple(
                EnvAddition(name, text, in_init=True)
                for name, text in files.items()
                if name.startswith("VC_") and len(text) <= LONGEST_VARIABLE
            )
            if options.inject_hosts_env
            else ()
        )
        return TaskAdditions(
            env=env,
            files=tuple(FileAddition(f"{HOSTS_FOLDER}/{n}", text) for n, text in files.items()),
            mounts=(MountAddition(HOSTS_FOLDER, f"{job.name}-svc"),),
            hostname=role.hostname or job.task_name(role, index),
            subdomain=role.subdomain or job.name,
        )

    def for_job(self, options: SvcOptions, job: JobContext) -> JobAdditions:
        """Give the headless service, the config map and the network policy."""
        return JobAdditions(
            config_map=f"{job.name}-svc",
            files=_files(job),
            services=(
                ServiceAddition(
                    job.name,
                    headless=True,
                    publish_not_ready=options.publish_not_ready_addresses,
                ),
            ),
            network_policy="" if options.disable_network_policy else job.name,
        )


def _files(job: JobContext) -> dict[str, str]:
    return job.once("svc.files", lambda: _make_files(job))


def _make_files(job: JobContext) -> dict[str, str]:
    """Roles as listed in the spec, indexes ascending; `-` in a role's name becomes `_`."""
    files: dict[str, str] = {}
    for role in job.roles:
        key = role.name.replace("-", "_")
        hosts = job.hosts(role)
        files[f"{key}.host"] = "\n".join(hosts)
        files[f"VC_{key.upper()}_HOSTS"] = ",".join(hosts)
        files[f"VC_{key.upper()}_NUM"] = str(len(hosts))
    return files
