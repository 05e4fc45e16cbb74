"""The hcclrank plugin: the rank of a task for Ascend's collective communication, as annotation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

from scheduling.spec.job_plugins.base import (
    JobContext,
    JobPlugin,
    Options,
    RoleContext,
    TaskAdditions,
)

RANK_ANNOTATION = "hccl/rankIndex"
RANK_VARIABLE = "TERRACE_HCCL_RANK"


class HcclrankOptions(Options):
    """Which roles are master and workers."""

    master: str = "master"
    worker: str = "worker"


class HcclrankPlugin(JobPlugin[HcclrankOptions]):
    """Masters come first, workers after them; a RANK that is set already wins (see `rank_of`)."""

    name: ClassVar[str] = "hcclrank"
    options_type = HcclrankOptions

    def for_task(
        self, options: HcclrankOptions, job: JobContext, role: RoleContext, index: int
    ) -> TaskAdditions:
        """Give the annotation to masters and workers."""
        master = job.role(options.master)
        if role.name == options.master:
            rank = index
        elif role.name == options.worker:
            rank = index + (master.replicas if master else 0)
        else:
            return TaskAdditions()
        return TaskAdditions(annotations={RANK_ANNOTATION: str(rank)})


def rank_of(
    computed: str, annotations: Mapping[str, str], containers: Iterable[Mapping[str, str]]
) -> str:
    """Return the rank that counts: an annotated one, else a RANK variable, else the computed."""
    if RANK_ANNOTATION in annotations:
        return annotations[RANK_ANNOTATION]
    return next((env["RANK"] for env in containers if "RANK" in env), computed)


def rank_variable(
    additions: Iterable[TaskAdditions], annotations: Mapping[str, str], env: Mapping[str, str]
) -> dict[str, str]:
    """Return the variable with a task's rank, for a machine that has no pod to annotate.

    `annotations` are the role's own, `env` is what its process sees, of other plugins too.
    """
    annotated = (one.annotations.get(RANK_ANNOTATION) for one in additions)
    rank = rank_of(next(filter(None, annotated), ""), annotations, [env])
    return {RANK_VARIABLE: rank} if rank else {}
