"""The tensorflow plugin: TF_CONFIG for every task."""

from __future__ import annotations

import json
from typing import ClassVar

from scheduling.spec.job_plugins.base import (
    EnvAddition,
    JobContext,
    JobPlugin,
    Options,
    RoleContext,
    TaskAdditions,
)


class TensorflowOptions(Options):
    """Which roles play TensorFlow's parts."""

    ps: str = "ps"
    worker: str = "worker"
    chief: str = "chief"
    evaluator: str = "evaluator"
    port: int = 2222


_PARTS = ("ps", "worker", "chief", "evaluator")


class TensorflowPlugin(JobPlugin[TensorflowOptions]):
    """Describes the cluster to each task as TensorFlow's own JSON."""

    name: ClassVar[str] = "tensorflow"
    requires: ClassVar[tuple[str, ...]] = ("svc",)
    options_type = TensorflowOptions

    def for_task(
        self, options: TensorflowOptions, job: JobContext, role: RoleContext, index: int
    ) -> TaskAdditions:
        """Give TF_CONFIG, unless the job is one task: then there is no cluster to describe."""
        if len(job.roles) == 1 and job.roles[0].replicas == 1:
            return TaskAdditions()
        parts = {getattr(options, part): part for part in reversed(_PARTS)}
        task = {"type": parts.get(role.name, role.name), "index": index}
        cluster = job.once("tensorflow.cluster", lambda: _cluster(options, job))
        text = f'{{"cluster":{cluster},"task":{_compact(task)}}}'
        return TaskAdditions(env=(EnvAddition("TF_CONFIG", text),))


def _cluster(options: TensorflowOptions, job: JobContext) -> str:
    """Write the hosts of every part that a role plays, in TensorFlow's order."""
    cluster: dict[str, list[str]] = {}
    for part in _PARTS:
        player = job.role(getattr(options, part))
        if player is not None:
            cluster[part] = [
                f"{host}:{job.port(player, n, options.port)}"
                for n, host in enumerate(job.hosts(player))
            ]
    return _compact(cluster)


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
