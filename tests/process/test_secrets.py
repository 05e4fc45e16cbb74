"""A canary: a secret reaches its task, and nothing of it is found anywhere else."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.running import PATIENCE_SECONDS, Up, data_folder, remove

CANARY = "canary-6626-1054-never-shown"
SHA = hashlib.sha256(CANARY.encode()).hexdigest()
SUBMIT = f"""
import json
from scheduling.domain import clock, jobs
from scheduling.models import Queue
from scheduling.spec.parse import Format, parse
from tenants.domain import secrets
from tenants.domain.access import load_actor
from tenants.domain.secrets import NewSecret
from tenants.models import SecretKind, User
admin = load_actor(User.objects.get(username="admin"))
unit = Queue.objects.get(name="default").unit_id
now = clock.database_now()
value = bytes.fromhex("{CANARY.encode().hex()}")
for name, kind in (("variable", SecretKind.VARIABLES), ("file", SecretKind.FILES)):
    new = NewSecret(name, kind, {{"CANARY": value}})
    secrets.create_secret(actor=admin, unit_id=unit, new=new, now=now)
script = (
    'printf %s "$CANARY" | sha256sum; sha256sum < "$TERRACE_SECRETS/file/CANARY";'
    ' stat -c %a "$TERRACE_SECRETS" "$TERRACE_SECRETS/file/CANARY"; echo ready;'
    ' until [ -e "$TERRACE_JOB_DIR/go" ]; do sleep 0.2; done'
)
spec = parse({{
    "name": "canary", "queue": "default",
    "roles": [{{
        "name": "main", "cpu": "0.1", "memory": "64Mi", "command": ["sh", "-c", script],
        "secrets": [{{"name": "variable"}}, {{"name": "file"}}],
    }}],
}}, form=Format.JSON)
print(jobs.submit_job(actor=admin, spec=spec, now=now).id)
"""
OUTPUT = """
from scheduling.models import Attempt, LogChunk
from scheduling.domain import logs
rows = LogChunk.objects.filter(stream="stdout").order_by("offset")
print("".join(bytes(row.data or b"").decode() for row in rows))
"""
DUMP = """
import base64
from django.db import connection
with connection.cursor() as cursor:
    for table in connection.introspection.table_names(cursor):
        cursor.execute(f'SELECT t::text FROM "{table}" t')
        for (row,) in cursor.fetchall():
            print(table, row)
"""
REDIS = """
import redis
from django.conf import settings
client = redis.Redis.from_url(settings.REDIS_URL)
for key in client.scan_iter():
    print(key, client.dump(key))
"""
REPLIES = """
from django.conf import settings
from django.test import Client
from tenants.models import Secret, User
settings.ALLOWED_HOSTS = ["*"]
user = User.objects.get(username="admin")
user.must_change_password = False
user.save()
client = Client(headers={"Host": settings.PUBLIC_URL.split("//")[1]})
client.force_login(user)
job = "%s"
secret = Secret.objects.get(name="variable").id
for path in (
    "/", "/jobs/", f"/jobs/{job}/", f"/jobs/{job}/spec/", f"/jobs/{job}/events/",
    f"/jobs/{job}/logs/", f"/jobs/{job}/clone/", "/activity/", "/admin/secrets/",
    f"/admin/secrets/{secret}/", "/activity/export/jsonl/", "/api/v1/secrets",
    f"/api/v1/secrets/{secret}", f"/api/v1/jobs/{job}", f"/api/v1/jobs/{job}/manifest",
    f"/api/v1/jobs/{job}/history", f"/api/v1/jobs/{job}/attempts", "/api/v1/audit",
):
    reply = client.get(path, follow=True)
    assert reply.status_code == 200, (path, reply.status_code)
    print(path, reply.getvalue())
"""
MARKS = (
    CANARY,
    base64.b64encode(CANARY.encode()).decode()[:-4],
    CANARY.encode().hex(),
)
"""How the value might be written somewhere."""


@pytest.fixture
def data() -> Iterator[Path]:
    folder = data_folder()
    yield folder
    remove(folder)


def found_in(text: str | bytes) -> bool:
    """Return whether the value stands in a text in any of its forms."""
    raw = text.encode() if isinstance(text, str) else text
    return any(mark.encode() in raw for mark in MARKS)


def files_with_it(folder: Path) -> list[str]:
    """Return the files below a folder that hold the value."""
    return sorted(
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink() and found_in(path.read_bytes())
    )


def processes_with_it(name: str) -> set[int]:
    """Return the pids whose command line or environment holds the value."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if found_in((folder / name).read_bytes()):
                found.add(int(folder.name))
        except OSError:
            continue
    return found


def output(up: Up) -> list[str]:
    """Wait until the task has said that it is ready, and return what it said."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while "ready" not in (text := up.ask(OUTPUT)):
        assert time.monotonic() < deadline, up.ask(
            "from scheduling.models import Job, Attempt;"
            "print(list(Job.objects.values('phase', 'reason_code')),"
            " list(Attempt.objects.values('state', 'message')))"
        )
    return text.splitlines()


def test_canary_is_in_its_task_and_nowhere_else(data: Path) -> None:
    """Database, Redis, logs, the node's records, other processes, pages and replies: nothing."""
    up = Up(data, with_agent=True)
    up.address()
    job = up.ask(SUBMIT)

    said = output(up)

    assert [line.split()[0] for line in said[:2]] == [SHA, SHA]
    assert said[2:4] == ["700", "600"]
    assert processes_with_it("cmdline") == set()
    tasks = processes_with_it("environ")
    assert tasks
    for pid in tasks:
        marks = Path(f"/proc/{pid}/environ").read_bytes()
        assert b"TERRACE_OUTPUT=" in marks, "only the task itself, and what it started"
    kept = files_with_it(data)
    assert [path.rpartition("/secrets/")[2] for path in kept] == ["file/CANARY"]
    for script in (DUMP, REDIS, REPLIES % job):
        assert not found_in(up.ask(script))

    (next(data.glob("agent/**/shared")) / "go").touch()
    wait_for_end(up)

    assert files_with_it(data) == []
    assert up.end() == 0
    assert files_with_it(data) == []
    assert not found_in(up.said())


def wait_for_end(up: Up) -> None:
    """Wait until the job has ended well."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    script = (
        "from scheduling.models import Job; import json;"
        "print(json.dumps(list(Job.objects.values_list('phase', flat=True))))"
    )
    while json.loads(up.ask(script)) != ["Completed"]:
        assert time.monotonic() < deadline
