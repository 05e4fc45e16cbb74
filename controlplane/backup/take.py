"""Take a backup of a running installation.

1. Copy the files that are there. 2. Dump the database, as it is at one moment. 3. Copy the files
that came meanwhile: every file that a row of that moment names was there in the first or the
second copy. 4. Write the manifest, without which the folder is no backup.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from django.conf import settings
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder

from controlplane.backup import database, files, manifest
from controlplane.backup.errors import BackupError
from controlplane.backup.manifest import FileEntry, Manifest
from controlplane.version import VERSION
from scheduling.domain.clock import database_now


def take(folder: Path, *, with_files: bool, say: Callable[[str], None]) -> Manifest:
    """Write a backup into `folder`, which must not be there or be empty.

    Raises:
        BackupError: it cannot be written, or the database cannot be read.
    """
    if database.is_being_restored():
        message = "A restore of this installation was begun and not finished: finish it first."
        raise BackupError(message)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(folder.iterdir()):
            message = f"{folder} is not empty: name a folder that is not there yet."
            raise BackupError(message)
        return _take(folder, with_files=with_files, say=say)
    except OSError as error:
        message = f"{folder} cannot be written: {error}."
        raise BackupError(message) from error


def _take(folder: Path, *, with_files: bool, say: Callable[[str], None]) -> Manifest:
    taken_at = database_now()
    known: dict[str, FileEntry] = {}
    store = folder / manifest.FILES
    if with_files:
        store.mkdir(mode=0o700)
        files.copy_out(store, known)
    say(f"{len(known)} files copied; dumping the database.")
    dump = folder / manifest.DATABASE
    database.dump(dump)
    if with_files:
        files.copy_out(store, known)
    entries = sorted(known.values(), key=lambda entry: entry.name)
    file_list = folder / manifest.FILE_LIST
    _write_list(file_list, entries)
    _sync(dump)
    size, digest = manifest.sha256_of(dump)
    made = Manifest(
        format=manifest.FORMAT,
        terrace_version=VERSION,
        taken_at=taken_at.isoformat(),
        postgres_version=_postgres_version(),
        migrations=newest_migrations(),
        node_lease_seconds=settings.TERRACE_NODE_LEASE_SECONDS,
        secrets_key=settings.TERRACE_SECRETS_KEYRING.current,
        database_bytes=size,
        database_sha256=digest,
        has_files=with_files,
        files=len(entries),
        files_bytes=sum(entry.bytes for entry in entries),
        file_list_sha256=manifest.sha256_of(file_list)[1],
    )
    manifest.write(folder, made)
    return made


def newest_migrations() -> dict[str, str]:
    """Return the newest migration of each app that the database has had."""
    applied = MigrationRecorder(connection).applied_migrations()
    return dict(sorted(applied))  # of an app's names, which are in order, the last one stays


def _postgres_version() -> str:
    number = database.server_version()
    return f"{number // 10_000}.{number % 10_000}"


def _write_list(path: Path, entries: list[FileEntry]) -> None:
    with path.open("x", encoding="utf-8") as stream:
        for entry in entries:
            line = {"name": entry.name, "bytes": entry.bytes, "sha256": entry.sha256}
            stream.write(json.dumps(line) + "\n")
        stream.flush()
        os.fsync(stream.fileno())


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
