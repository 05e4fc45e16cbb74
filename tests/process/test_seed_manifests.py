"""Manifests of the first users, as they are: submitted by the API and run on the real agent.

Their images are not here. A wrapper stands in for them, which runs the manifest's own shell script
with stand-ins for the programs that it calls.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from django.test import Client

from scheduling.domain import clock, images, invariants, logs
from scheduling.domain.images import RuleEdit
from scheduling.models import Attempt, Device, Job, Node
from scheduling.models.job import FINISHED_PHASES
from scheduling.spec.job_spec import GPU_RESOURCE
from tenants.domain import tokens
from tests.process.whole_system import WholeSystem

FOLDER = os.environ.get("TERRACE_MANIFESTS", "")
pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(not FOLDER, reason="TERRACE_MANIFESTS names no folder of manifests to read"),
]

GPUS = 10
AMOUNTS = {"cpu": 64_000, "memory": 512 << 30, "pods": 110_000, GPU_RESOURCE: 1000 * GPUS}
PROGRAMS = {
    # a parameter server and a daemon go on until the job is complete
    "python": """case "$*" in *--job_name=ps*) exec sleep 600 ;; *) echo "python $*" ;; esac""",
    "sshd": """case "$*" in *-D*) exec sleep 600 ;; esac""",
    "mpiexec": """echo "mpiexec $*" """,
    "train": """echo trained""",
}
IMAGE = r"""#!/bin/sh
PATH={programs}:$PATH
[ $# -gt 0 ] || exec train
hosts=/etc/volcano
[ -d $hosts ] || hosts=$TERRACE_FILES/etc/volcano
script=$(printf %s "$3" |
    sed "s#/etc/volcano#$hosts#g; s#/usr/sbin/sshd#sshd#g; s#mkdir -p /var/run/sshd#true#")
exec "$1" "$2" "$script"
"""


@pytest.fixture
def system() -> Iterator[WholeSystem]:
    system = WholeSystem()
    image = write_image(system.agent.data / "image")
    (system.agent.data / "agent.toml").write_text(
        f'[runtimes.stand-in]\nkind = "wrapper"\nargv = ["{image}"]\n'
    )
    installation = system.installed.installation
    images.replace_rules(
        actor=system.installed.actor,
        cluster_id=installation.cluster.id,
        edits=[
            RuleEdit(pattern, "stand-in")
            for pattern in ("docker.m.daocloud.io/volcanosh/*", "train_script")
        ],
        expected_version=installation.cluster.version,
        now=clock.database_now(),
    )
    with system:
        node = Node.objects.get()
        Device.objects.bulk_create(
            Device(node=node, uuid=f"stand-in-{index}", index=index) for index in range(GPUS)
        )
        yield system


def write_image(folder: Path) -> Path:
    folder.mkdir()
    scripts = {name: f"#!/bin/sh\n{text}\n" for name, text in PROGRAMS.items()}
    scripts["image"] = IMAGE.format(programs=shlex.quote(str(folder)))
    for name, text in scripts.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    folder.chmod(0o755)
    return folder / "image"


def submit(system: WholeSystem, manifest: str) -> Job:
    """Post a manifest as it is."""
    installed, now = system.installed, clock.database_now()
    _, secret = tokens.create_token(
        actor=installed.actor,
        user=installed.installation.admin,
        name=manifest,
        verbs=[],
        unit=None,
        expires_at=now + timedelta(hours=1),
        now=now,
    )
    reply = Client().post(
        "/api/v1/jobs",
        (Path(FOLDER) / "files" / manifest).read_bytes(),
        content_type="application/yaml",
        headers={"Authorization": f"Bearer {secret}"},
    )
    assert reply.status_code == 201, reply.content
    return Job.objects.get(id=reply.json()["id"])


def ended(job: Job) -> Job | None:
    """Keep the node large, whatever its agent found; return the job when it has ended."""
    Device.objects.filter(is_present=False).update(is_present=True)
    Node.objects.exclude(allocatable=AMOUNTS).update(allocatable=AMOUNTS, capacity=AMOUNTS)
    return Job.objects.filter(id=job.id, phase__in=FINISHED_PHASES).first()


def words_of(job: Job, role: str, index: int) -> str:
    attempt = Attempt.objects.get(job=job, task__role__name=role, task__index=index)
    return logs.read_log(attempt=attempt, stream="stdout").data.decode()


def test_manifests_of_the_first_users_run_to_completion(system: WholeSystem) -> None:
    """Each is accepted and completes; its tasks find hosts and index as Volcano gives them."""
    jobs = {}
    for number in ("004-1", "004-2", "003-1"):
        jobs[number] = job = submit(system, f"seed-{number}.yaml")
        done = system.wait_for(partial(ended, job))
        assert done.phase == "Completed", (done.message, done.reason_code)

    for index in range(2):
        line = system.wait_for(partial(words_of, jobs["004-1"], "worker", index))
        assert f"--task_index={index} " in line
        name = "tensorflow-benchmark"
        assert dict(re.findall(r"--(ps_hosts|worker_hosts)=(\S*)", line)) == {
            "ps_hosts": f"{name}-ps-0.{name}:2222",
            "worker_hosts": ",".join(f"{name}-worker-{i}.{name}:2222" for i in range(2)),
        }
    hosts = ",".join(f"lm-mpi-job-mpiworker-{i}.lm-mpi-job" for i in range(3))
    said = system.wait_for(partial(words_of, jobs["004-2"], "mpimaster", 0))
    assert said == f"mpiexec --allow-run-as-root --host {hosts} -np 3 mpi_hello_world\n"
    assert Job.objects.get(id=jobs["003-1"].id).tasks_succeeded == 10
    assert invariants.check() == []
