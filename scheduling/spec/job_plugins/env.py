"""The env plugin: tells each process its task's index."""

from __future__ import annotations

from typing import ClassVar

from scheduling.spec.job_plugins.base import (
    EnvAddition,
    JobContext,
    JobPlugin,
    Options,
    RoleContext,
    TaskAdditions,
)


class EnvOptions(Options):
    """It has none."""


class EnvPlugin(JobPlugin[EnvOptions]):
    """VC_TASK_INDEX, and under its older name VK_TASK_INDEX."""

    name: ClassVar[str] = "env"
    options_type = EnvOptions

    def for_task(
        self, options: EnvOptions, job: JobContext, role: RoleContext, index: int
    ) -> TaskAdditions:
        """Give the index to all containers."""
        del options, job, role
        return TaskAdditions(
            env=tuple(
                EnvAddition(name, str(index), in_init=True)
                for name in ("VK_TASK_INDEX", "VC_TASK_INDEX")
            )
        )
