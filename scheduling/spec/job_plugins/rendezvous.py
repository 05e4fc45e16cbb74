"""The rendezvous plugin: variables from templates, for frameworks without a plugin of their own."""

from __future__ import annotations

import re
from typing import ClassVar

from pydantic import Field

from scheduling.spec.job_plugins.base import (
    EnvAddition,
    JobContext,
    JobPlugin,
    Options,
    RoleContext,
    TaskAdditions,
)
from scheduling.spec.problems import Problem

_PLACEHOLDER = re.compile(r"\{(job|role|index|hosts|host|num)(?:\.([a-z0-9-]{1,63}))?\}")


class RendezvousOptions(Options):
    """Variable name -> text with placeholders.

    `{job}`, `{role}`, `{index}`; of a role: `{host.server}` (its first host), `{hosts.worker}`
    (all, comma separated) and `{num.worker}`.
    """

    env: dict[str, str] = Field(default_factory=dict)


class RendezvousPlugin(JobPlugin[RendezvousOptions]):
    """Covers MXNet (DMLC_*), PaddlePaddle (PADDLE_*), torchrun and their like."""

    name: ClassVar[str] = "rendezvous"
    requires: ClassVar[tuple[str, ...]] = ("svc",)
    options_type = RendezvousOptions

    def problems(self, options: RendezvousOptions, job: JobContext) -> list[Problem]:
        """Refuse placeholders that name no role."""
        return [
            Problem(
                f"plugins.rendezvous.env.{variable}",
                "unknown_placeholder",
                {"placeholder": match[0]},
            )
            for variable, text in options.env.items()
            for match in _PLACEHOLDER.finditer(text)
            if match[1] in ("hosts", "host", "num") and job.role(match[2] or "") is None
        ]

    def for_task(
        self, options: RendezvousOptions, job: JobContext, role: RoleContext, index: int
    ) -> TaskAdditions:
        """Give the filled-in variables to all containers."""

        def fill(match: re.Match[str]) -> str:
            named = job.role(match[2] or "")
            hosts = job.hosts(named) if named else []
            values = {
                "job": job.name,
                "role": role.name,
                "index": str(index),
                "host": hosts[0] if hosts else "",
                "hosts": ",".join(hosts),
                "num": str(named.replicas if named else 0),
            }
            return values[match[1]]

        return TaskAdditions(
            env=tuple(
                EnvAddition(name, _PLACEHOLDER.sub(fill, text), in_init=True)
                for name, text in options.env.items()
            )
        )
