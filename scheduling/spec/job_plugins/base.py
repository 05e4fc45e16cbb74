"""What a job plugin is: typed options in, additions to tasks and to the job out.

A plugin sees a job as `JobContext`: names, replica counts and where each task can be reached. It
never generates keys or picks ports; those are given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, ConfigDict

from scheduling.spec.problems import Problem


class Options(BaseModel):
    """Base of a plugin's options; `FLAGS` names the flag where it is not the field's name."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    FLAGS: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def flag(cls, name: str) -> str:
        """Return the command-line flag of a field, as a Volcano manifest writes it."""
        return cls.FLAGS.get(name, name.replace("_", "-"))


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a task can be reached.

    `host` is the name to write into environment and files; `address` what the hosts file maps it
    to (empty: a cluster's DNS knows it). `ports` maps a declared port to the one really used,
    where tasks of one machine share its ports.
    """

    host: str
    address: str = ""
    ports: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RoleContext:
    """A role as plugins see it; a template may fix host name and subdomain."""

    name: str
    replicas: int
    hostname: str = ""
    subdomain: str = ""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """An SSH key pair, made once for a job by whoever may make secrets."""

    private_key: str
    public_key: str


@dataclass(frozen=True, slots=True)
class JobContext:
    """A job as plugins see it."""

    name: str
    roles: tuple[RoleContext, ...]
    endpoints: Mapping[tuple[str, int], Endpoint] = field(default_factory=dict)
    key_pair: KeyPair | None = None
    computed: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """What is the same for all tasks and computed once: host lists, files. See `once`."""

    def once(self, key: str, compute: Callable[[], T]) -> T:
        """Return what was computed under this key, computing it the first time."""
        if key not in self.computed:
            self.computed[key] = compute()
        value: T = self.computed[key]
        return value

    def role(self, name: str) -> RoleContext | None:
        """Return the role with this name, None if there is none."""
        return next((role for role in self.roles if role.name == name), None)

    def task_name(self, role: RoleContext, index: int) -> str:
        """Return the name of host and pod: `<job>-<role>-<index>`."""
        return f"{self.name}-{role.name}-{index}"

    def host(self, role: RoleContext, index: int) -> str:
        """Return the name under which a task is reached."""
        endpoint = self.endpoints.get((role.name, index))
        if endpoint is not None:
            return endpoint.host
        hostname = role.hostname or self.task_name(role, index)
        return f"{hostname}.{role.subdomain or self.name}"

    def hosts(self, role: RoleContext) -> list[str]:
        """Return the hosts of a role by index; a fixed host name stands for all its tasks."""
        count = min(role.replicas, 1) if role.hostname else role.replicas
        return self.once(
            f"hosts.{role.name}", lambda: [self.host(role, index) for index in range(count)]
        )

    def port(self, role: RoleContext, index: int, port: int) -> int:
        """Return the port really used for a declared one."""
        endpoint = self.endpoints.get((role.name, index))
        return endpoint.ports.get(port, port) if endpoint is not None else port


@dataclass(frozen=True, slots=True)
class EnvAddition:
    """A variable for every main container, and for init containers where `in_init`."""

    name: str
    value: str
    in_init: bool = False


@dataclass(frozen=True, slots=True)
class PortAddition:
    """A port to open on every main container, and on init containers where `in_init`."""

    name: str
    number: int
    in_init: bool = False
    container: str = ""
    """Only on this container; empty: on all."""


@dataclass(frozen=True, slots=True)
class FileAddition:
    """A file that every process of the task finds at the path."""

    path: str
    text: str
    mode: int = 0o644


@dataclass(frozen=True, slots=True)
class MountAddition:
    """How a cluster brings the files in: one volume at one path."""

    path: str
    volume: str
    mode: int = 0o644


@dataclass(frozen=True, slots=True)
class WaitAddition:
    """A step before the main process: wait until host and port answer, or give up."""

    name: str
    image: str
    host: str
    port: int
    timeout_seconds: int


@dataclass(frozen=True, slots=True)
class TaskAdditions:
    """What a plugin adds to one task."""

    env: tuple[EnvAddition, ...] = ()
    ports: tuple[PortAddition, ...] = ()
    files: tuple[FileAddition, ...] = ()
    mounts: tuple[MountAddition, ...] = ()
    waits: tuple[WaitAddition, ...] = ()
    hostname: str = ""
    subdomain: str = ""
    commands: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Container name -> command that replaces its own."""
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ServiceAddition:
    """A service in front of tasks; headless ones only give names."""

    name: str
    headless: bool
    role: str = ""
    ports: Mapping[str, int] = field(default_factory=dict)
    publish_not_ready: bool = False


@dataclass(frozen=True, slots=True)
class JobAdditions:
    """What a plugin keeps beside a job for as long as the job is not finished."""

    config_map: str = ""
    secret: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    services: tuple[ServiceAddition, ...] = ()
    network_policy: str = ""


OptionsT = TypeVar("OptionsT", bound=Options)


class JobPlugin(Generic[OptionsT]):
    """One plugin; its methods are pure. Subclasses override what they add."""

    name: ClassVar[str]
    requires: ClassVar[tuple[str, ...]] = ()
    """Plugins that are added when this one is used."""
    options_type: type[OptionsT]

    def problems(self, options: OptionsT, job: JobContext) -> list[Problem]:
        """Say what keeps the plugin from working for this job."""
        del options, job
        return []

    def for_task(
        self, options: OptionsT, job: JobContext, role: RoleContext, index: int
    ) -> TaskAdditions:
        """Say what one task gets."""
        del options, job, role, index
        return TaskAdditions()

    def for_job(self, options: OptionsT, job: JobContext) -> JobAdditions:
        """Say what the job gets."""
        del options, job
        return JobAdditions()
