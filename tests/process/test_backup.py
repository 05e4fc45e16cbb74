"""A backup taken under load brings everything back, and nothing runs twice."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from controlplane.backup import manifest
from tests.process.running import (
    CHECKOUT,
    MINIMAL_ENVIRONMENT,
    PATIENCE_SECONDS,
    Up,
    data_folder,
    processes_of,
    remove,
)
from tests.process.test_up_tasks import ATTEMPTS, SUBMIT, sleepers, wait_for_attempts

LEASE_SECONDS = "3"
UPLOAD = """
from django.core.files.base import ContentFile
from scheduling.domain import clock, files
from tenants.models import OrgUnit
from tenants.domain.access import load_actor
from tenants.models import User
admin = load_actor(User.objects.get(username="admin"))
unit = OrgUnit.objects.get(parent=None)
made = files.store_upload(
    actor=admin, unit_id=unit.id, path="code.py", content=ContentFile(b"print(7)"),
    now=clock.database_now(),
)
"""
READ_FILES = """
import json
from django.core.files.storage import default_storage
from scheduling.models import JobFile
print(json.dumps([
    [row.path, default_storage.open(row.storage_name).read().decode()]
    for row in JobFile.objects.order_by("created_at")
]))
"""
# Says each job's name once its transaction has been committed, until it is killed.
SUBMIT_ENDLESSLY = (
    SUBMIT.split("spec = parse")[0]
    + """
import itertools
admin = load_actor(User.objects.get(username="admin"))
for number in itertools.count():
    name = f"load-{number}"
    spec = parse({
        "name": name, "queue": "default",
        "roles": [{"name": "main", "replicas": 3, "cpu": "64", "command": ["true"]}],
    }, form=Format.JSON)
    jobs.submit_job(actor=admin, spec=spec, now=clock.database_now())
    print(name, flush=True)
"""
)
JOB_NAMES = """
import json
from scheduling.models import Job
print(json.dumps(list(Job.objects.order_by("created_at").values_list("name", flat=True))))
"""
EPOCH = """
from scheduling.models import Lease
print(Lease.objects.get(scope__startswith="scheduler:").epoch)
"""


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended, and what it said."""

    status: int
    said: str


def begin(data: Path, *, with_agent: bool = False) -> Up:
    """Start an installation whose tasks go on unheard for a short time only."""
    return Up(data, with_agent=with_agent, TERRACE_NODE_LEASE_SECONDS=LEASE_SECONDS)


def manage(data: Path, *arguments: str) -> Done:
    """Run one command of `manage.py` for the installation in `data`."""
    done = subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=CHECKOUT,
        env={
            **MINIMAL_ENVIRONMENT,
            "TERRACE_NODE_LEASE_SECONDS": LEASE_SECONDS,
            "TERRACE_DATA": str(data),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    return Done(done.returncode, done.stdout)


@pytest.fixture
def data() -> Iterator[Path]:
    folder = data_folder()
    yield folder
    remove(folder)


@pytest.fixture
def another() -> Iterator[Path]:
    folder = data_folder()
    yield folder
    remove(folder)


@pytest.fixture(scope="module")
def taken() -> Iterator[Path]:
    """A backup of an installation with one uploaded file and one job, which never ran."""
    folder = data_folder()
    up = begin(folder)
    up.address()
    up.ask(UPLOAD)
    up.ask(SUBMIT)
    assert up.end() == 0
    backup = folder.parent / "backup"
    done = manage(folder, "backup", str(backup))
    assert done.status == 0, done.said
    assert processes_of(folder) == []
    yield backup
    remove(folder)


def test_backup_under_load_is_restored_elsewhere(data: Path, another: Path) -> None:
    """All that was acknowledged before is there, the rest wholly or not at all, all rules hold."""
    up = begin(data)
    up.address()
    up.ask(UPLOAD)
    said = data.with_name("load.out")
    with said.open("wb") as stream:
        load = subprocess.Popen(
            [sys.executable, "manage.py", "shell", "--no-imports", "-c", SUBMIT_ENDLESSLY],
            cwd=CHECKOUT,
            env={**MINIMAL_ENVIRONMENT, "TERRACE_DATA": str(data)},
            stdout=stream,
            stderr=subprocess.STDOUT,
        )
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(said.read_text().split()) < 20:
        assert load.poll() is None, said.read_text()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    acknowledged = said.read_text().split()
    backup = data.with_name("backup")

    done = manage(data, "backup", str(backup))
    load.kill()
    load.wait()
    later = len(said.read_text().split())
    assert up.end() == 0
    restored = manage(another, "restore", str(backup))
    second = begin(another)
    second.address()

    assert done.status == 0, done.said
    assert restored.status == 0, restored.said
    assert "or those secrets stay closed" in restored.said  # the key was not brought along
    assert "invariants hold." in restored.said
    assert "Sign in as" not in second.said()
    names = json.loads(second.ask(JOB_NAMES))
    assert names[: len(acknowledged)] == acknowledged
    assert names == [f"load-{number}" for number in range(len(names))]
    assert len(names) <= later + 1
    assert json.loads(second.ask(READ_FILES)) == [["code.py", "print(7)"]]
    assert manage(another, "check_invariants").status == 0
    assert manage(another, "verify_audit").status == 0
    again = manage(another, "backup", str(another.with_name("backup")))
    assert again.status == 0, again.said
    assert second.end() == 0


def test_tasks_of_a_restored_installation_run_once_more(data: Path) -> None:
    """What ran at the backup is lost and tried again, by an agent that has seen later epochs."""
    first = begin(data, with_agent=True)
    first.address()
    first.ask(SUBMIT)
    wait_for_attempts(first, [[1, "Running", None, ""]] * 2)
    backup = data.with_name("backup")
    assert manage(data, "backup", str(backup)).status == 0
    in_use = manage(data, "restore", str(backup), "--replace")
    assert first.end() == 0
    up = begin(data, with_agent=True)  # the loops' epochs go on meanwhile, and the agent sees them
    up.address()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while json.loads(up.ask(ATTEMPTS))[-1][1] != "Running":
        assert time.monotonic() < deadline
    latest = int(up.ask(EPOCH))
    assert up.end() == 0

    refused = manage(data, "restore", str(backup))
    done = manage(data, "restore", str(backup), "--replace")
    last = begin(data, with_agent=True)
    last.address()

    assert in_use.status == 1
    assert "The database is in use by" in in_use.said
    assert refused.status == 1
    assert "say so with --replace" in refused.said
    assert done.status == 0, done.said
    assert "2 attempts that ran then are lost" in done.said
    lost, again = [1, "Lost", None, "NodeLost"], [2, "Running", None, ""]
    wait_for_attempts(last, [lost, lost, again, again])
    assert len(sleepers(data)) == 2
    assert int(last.ask(EPOCH)) > latest
    assert last.end() == 0


def test_damaged_backups_are_refused(taken: Path, another: Path) -> None:
    """Without a manifest, with a byte changed or a file gone, nothing is restored."""
    copy = another.with_name("copy")
    said = {}
    for damage in ("manifest", "byte", "file"):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(taken, copy)
        if damage == "manifest":
            (copy / manifest.MANIFEST).unlink()
        elif damage == "byte":
            dump = copy / manifest.DATABASE
            content = bytearray(dump.read_bytes())
            content[len(content) // 2] ^= 1
            dump.write_bytes(content)
        else:
            next(path for path in (copy / manifest.FILES).rglob("*") if path.is_file()).unlink()
        done = manage(another, "restore", str(copy))
        assert done.status == 1, done.said
        said[damage] = done.said

    assert "has no manifest.json: it is no backup, or one that was interrupted" in said["manifest"]
    assert "database.dump is not what the backup had" in said["byte"]
    assert "cannot be read (No such file or directory): the backup is not whole" in said["file"]


def test_failed_restore_leaves_everything_as_it_was(taken: Path, data: Path) -> None:
    """Where the rows cannot be brought back, the rows and files of before are still there."""
    up = begin(data)
    up.address()
    up.ask(UPLOAD)
    up.ask(UPLOAD)
    assert up.end() == 0
    copy = data.with_name("copy")
    shutil.copytree(taken, copy)
    cut = (copy / manifest.DATABASE).read_bytes()[:-5000]
    (copy / manifest.DATABASE).write_bytes(cut)
    size, digest = manifest.sha256_of(copy / manifest.DATABASE)
    fields = json.loads((copy / manifest.MANIFEST).read_text())
    fields.update(database_bytes=size, database_sha256=digest)
    (copy / manifest.MANIFEST).write_text(json.dumps(fields))

    done = manage(data, "restore", str(copy), "--replace")
    again = begin(data)
    again.address()

    assert done.status == 1
    assert "pg_restore" in done.said
    assert json.loads(again.ask(READ_FILES)) == [["code.py", "print(7)"]] * 2
    assert again.end() == 0


def test_killed_restore_is_noticed_and_undone(taken: Path, data: Path) -> None:
    """Terrace refuses to start on half a restore; the next restore begins again and ends it."""
    output = data.with_name("restore.out")
    with output.open("wb") as stream:
        killed = subprocess.Popen(
            [sys.executable, "manage.py", "restore", str(taken)],
            cwd=CHECKOUT,
            env={**MINIMAL_ENVIRONMENT, "TERRACE_DATA": str(data)},
            stdout=stream,
            stderr=subprocess.STDOUT,
        )
    deadline = time.monotonic() + PATIENCE_SECONDS
    while "Waiting" not in output.read_text():
        assert killed.poll() is None, output.read_text()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            is_ours = str(taken).encode() in (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if is_ours:
            os.kill(int(folder.name), signal.SIGKILL)
    killed.wait()

    refused = begin(data)
    refused.wait_until_it_says("A restore was begun and not finished")
    assert refused.process.wait(timeout=PATIENCE_SECONDS) == 1
    done = manage(data, "restore", str(taken))
    up = begin(data)
    up.address()

    assert done.status == 0, done.said
    assert "An earlier restore was interrupted; undoing it first." in done.said
    assert json.loads(up.ask(JOB_NAMES)) == ["sleeper"]
    assert up.end() == 0
