"""Files of jobs: code that was uploaded, outputs that nodes bring; bytes behind the storage API.

Bytes are written before the row: what is lost in between is an unknown object in the store, never
a row that promises bytes which are not there. Names in the store are ours; the names that people
and tasks gave are only shown.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import datetime
from pathlib import PurePosixPath
from uuid import UUID, uuid4

from django.core.files.base import File
from django.core.files.storage import default_storage
from django.db import transaction

from scheduling.domain import quotas
from scheduling.domain.stored_bytes import open_stored
from scheduling.models import Attempt, Job, JobFile
from tenants.domain import access
from tenants.domain.access import Actor, Verb
from tenants.domain.errors import Invalid, NotFound, Problem

LARGEST_UPLOAD = 256 * 1024 * 1024
LARGEST_OUTPUT = 4 * 1024**3
CHUNK = 1024 * 1024
LONGEST_PATH = 500
CODE = "code"
OUTPUT = "output"


def store_upload(
    *, actor: Actor, unit_id: UUID, path: str, content: File[bytes], now: datetime
) -> JobFile:
    """Keep a file or archive of code for a job that is yet to be submitted to this unit.

    Raises:
        NotFound, Denied: the actor may not submit jobs there.
        Invalid: it is too big, for a quota too, or its path leaves its folder.
    """
    access.require(actor, Verb.JOB_CREATE, unit_id, what="queue")
    if actor.user_id is None:
        raise Invalid([Problem("owner", "owner_missing")])
    file = JobFile(
        unit_id=unit_id,
        owner_id=actor.user_id,
        purpose=CODE,
        path=safe_path(path),
        created_at=now,
    )
    return _store(file, content, largest=LARGEST_UPLOAD)


def store_output(
    *, node_id: UUID, attempt_id: UUID, path: str, content: File[bytes], now: datetime
) -> JobFile:
    """Keep a file that a task left; a node brings only what its own attempts made.

    The same path of the same attempt replaces what was brought before.

    Raises:
        NotFound: the attempt is not one of the node's.
        Invalid: it is too big, or its path leaves its folder.
    """
    attempt = Attempt.objects.filter(id=attempt_id, node_id=node_id).select_related("job").first()
    if attempt is None:
        raise NotFound("attempt")
    file = JobFile(
        unit_id=attempt.job.unit_id,
        owner_id=attempt.job.owner_id,
        job_id=attempt.job_id,
        attempt=attempt,
        purpose=OUTPUT,
        path=safe_path(path),
        created_at=now,
    )
    old = JobFile.objects.filter(attempt=attempt, purpose=OUTPUT, path=file.path)
    replaced = list(old.values_list("id", "storage_name"))
    with transaction.atomic():
        JobFile.objects.filter(id__in=[one for one, _ in replaced]).delete()
        stored = _store(file, content, largest=LARGEST_OUTPUT)
    for _, name in replaced:
        default_storage.delete(name)
    return stored


def outputs(job: Job) -> list[JobFile]:
    """Return what the tasks of a job left, newest attempt first, by path."""
    return list(
        JobFile.objects.filter(job=job, purpose=OUTPUT)
        .select_related("attempt__task__role")
        .order_by("-attempt__number", "path")
    )


def code_for_node(*, node_id: UUID, file_id: UUID) -> JobFile:
    """Return a file of code for a node that runs a task of its job.

    Raises:
        NotFound: no task of the file's job is on the node.
    """
    file = JobFile.objects.filter(id=file_id, purpose=CODE, job__attempts__node_id=node_id).first()
    if file is None:
        raise NotFound("file")
    return file


def open_bytes(file: JobFile) -> File[bytes]:
    """Open the bytes of a file.

    Raises:
        Gone: the store has lost them.
    """
    return open_stored(file.storage_name, shown_as=file.path)


def read(file: JobFile) -> Iterator[bytes]:
    """Give the bytes of a file in parts; it is opened before the first one is asked for.

    Raises:
        Gone: the store has lost them.
    """
    return _parts(open_bytes(file))


def _parts(stored: File[bytes]) -> Iterator[bytes]:
    with stored:
        while part := stored.read(CHUNK):
            yield part


def safe_path(path: str) -> str:
    """Return a relative path without tricks.

    Raises:
        Invalid: it is empty, absolute, too long, has `..`, a backslash or a control character.
    """
    parts = PurePosixPath(path).parts
    is_odd = any(ord(letter) < ord(" ") for letter in path) or "\\" in path
    if not parts or path.startswith("/") or ".." in parts or is_odd or len(path) > LONGEST_PATH:
        raise Invalid([Problem("path", "path_unsafe", {"path": path[:LONGEST_PATH]})])
    return str(PurePosixPath(path))


def _store(file: JobFile, content: File[bytes], *, largest: int) -> JobFile:
    size = content.size
    if size > largest:
        raise Invalid([Problem("content", "file_too_big", {"size": size, "max": largest})])
    digest = hashlib.sha256()
    for part in content.chunks(CHUNK):
        digest.update(part)
    content.seek(0)
    wanted = f"{file.purpose}/{file.unit_id}/{uuid4()}"
    file.storage_name = default_storage.save(wanted, content)
    file.size_bytes, file.sha256 = size, digest.hexdigest()
    try:
        with transaction.atomic():
            quotas.require_storage(unit_id=file.unit_id, owner_id=file.owner_id, size=size)
            file.save(force_insert=True)
    except Invalid:
        default_storage.delete(file.storage_name)
        raise
    return file
