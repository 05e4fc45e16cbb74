"""The ssh plugin: one key pair for a job, and a client configuration that knows its tasks."""

from __future__ import annotations

from typing import ClassVar

from pydantic import field_validator

from scheduling.spec.job_plugins.base import (
    FileAddition,
    JobAdditions,
    JobContext,
    JobPlugin,
    MountAddition,
    Options,
    RoleContext,
    TaskAdditions,
)

DEFAULT_KEY_PATH = "/root/.ssh"
DEFAULT_PORT = 22
_LARGEST_PORT = 65_535


class SshOptions(Options):
    """Where the keys go, and the user's own keys if there are any."""

    FLAGS: ClassVar = {
        "key_path": "ssh-key-file-path",
        "private_key": "ssh-private-key",
        "public_key": "ssh-public-key",
        "port": "ssh-port",
    }
    key_path: str = DEFAULT_KEY_PATH
    private_key: str = ""
    public_key: str = ""
    port: int = DEFAULT_PORT

    @field_validator("port")
    @classmethod
    def _valid_port(cls, port: int) -> int:
        """Use 22 where the number is no port, as Volcano does."""
        return port if 1 <= port <= _LARGEST_PORT else DEFAULT_PORT


class SshPlugin(JobPlugin[SshOptions]):
    """Lets the tasks of a job log in to one another without a password."""

    name: ClassVar[str] = "ssh"
    options_type = SshOptions

    def for_task(
        self, options: SshOptions, job: JobContext, role: RoleContext, index: int
    ) -> TaskAdditions:
        """Give keys and configuration; the default folder is for its owner's eyes only."""
        del role, index
        mode = 0o600 if options.key_path == DEFAULT_KEY_PATH else 0o644
        return TaskAdditions(
            files=tuple(
                FileAddition(f"{options.key_path}/{name}", text, mode)
                for name, text in _files(options, job).items()
            ),
            mounts=(MountAddition(options.key_path, f"{job.name}-ssh", mode),),
        )

    def for_job(self, options: SshOptions, job: JobContext) -> JobAdditions:
        """Give the secret that holds keys and configuration."""
        return JobAdditions(secret=f"{job.name}-ssh", files=_files(options, job))


def _files(options: SshOptions, job: JobContext) -> dict[str, str]:
    private, public = options.private_key, options.public_key
    if not (private and public) and job.key_pair is not None:
        private, public = job.key_pair.private_key, job.key_pair.public_key
    keys = {"id_rsa": private, "id_rsa.pub": public, "authorized_keys": public} if private else {}
    config = job.once("ssh.config", lambda: _client_config(options, job))
    return {**keys, "config": config}


def _client_config(options: SshOptions, job: JobContext) -> str:
    lines = ["StrictHostKeyChecking no", "UserKnownHostsFile /dev/null"]
    for role in job.roles:
        for index, host in enumerate(job.hosts(role)):
            lines += [
                f"Host {role.hostname or job.task_name(role, index)}",
                f"  HostName {host}",
                f"  Port {job.port(role, index, options.port)}",
            ]
    return "\n".join(lines) + "\n"
