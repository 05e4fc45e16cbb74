"""The manifest of a backup: what it is of, and the sum of every byte in it.

It is written last and whole, so that a folder without one is no backup, and the sums tell a
damaged one. `files.jsonl` lists the files, a line each; the manifest has the sum of that list.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from controlplane.backup.errors import BackupError

FORMAT = 1
MANIFEST = "manifest.json"
DATABASE = "database.dump"
FILE_LIST = "files.jsonl"
FILES = "files"
CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file of the store."""

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What stands in `manifest.json`."""

    format: int
    terrace_version: str
    taken_at: str
    """By the database's clock, before the first row was read."""
    postgres_version: str
    migrations: dict[str, str]
    """The newest migration of each app."""
    node_lease_seconds: int
    """How long a task may go on unheard under the settings of then."""
    secrets_key: str
    """The id of the key that sealed secrets then; the key itself is in no backup."""
    database_bytes: int
    database_sha256: str
    has_files: bool
    files: int
    files_bytes: int
    file_list_sha256: str

    @property
    def time(self) -> datetime:
        """When it was taken."""
        return datetime.fromisoformat(self.taken_at)


def write(folder: Path, manifest: Manifest) -> None:
    """Write the manifest at once, after everything else has reached the disk."""
    draft = folder / f"{MANIFEST}.new"
    with draft.open("x", encoding="utf-8") as stream:
        json.dump(asdict(manifest), stream, indent=1)
        stream.write("\n")
        stream.flush()
        os.fsync(stream.fileno())
    draft.rename(folder / MANIFEST)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read(folder: Path) -> Manifest:
    """Read the manifest.

    Raises:
        BackupError: there is none, or not one of this format.
    """
    path = folder / MANIFEST
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        message = (
            f"{folder} has no {MANIFEST}: it is no backup, or one that was interrupted. "
            "Restore another one."
        )
        raise BackupError(message) from None
    except (ValueError, OSError) as error:
        message = f"{path} cannot be read ({error}). Restore another backup."
        raise BackupError(message) from error
    if not isinstance(fields, dict) or fields.get("format") != FORMAT:
        found = fields.get("format") if isinstance(fields, dict) else fields
        message = (
            f"{path} is of format {found!r}, and this Terrace reads format {FORMAT}: restore it "
            "with the version that took it, then upgrade."
        )
        raise BackupError(message)
    try:
        return Manifest(**fields)
    except TypeError as error:
        message = f"{path} is not whole ({error}). Restore another backup."
        raise BackupError(message) from error


def entries(folder: Path) -> Iterator[FileEntry]:
    """Yield the list of files."""
    with (folder / FILE_LIST).open(encoding="utf-8") as stream:
        for line in stream:
            yield FileEntry(**json.loads(line))


def verify(folder: Path, manifest: Manifest) -> None:
    """Read every byte of the backup and compare the sums.

    Raises:
        BackupError: something is missing or was altered; it is named.
    """
    _compare(folder / DATABASE, manifest.database_bytes, manifest.database_sha256)
    file_list = folder / FILE_LIST
    _compare(file_list, None, manifest.file_list_sha256)
    count = size = 0
    for entry in entries(folder):
        _compare(folder / FILES / entry.name, entry.bytes, entry.sha256)
        count += 1
        size += entry.bytes
    if (count, size) != (manifest.files, manifest.files_bytes):
        message = f"{file_list} has {count} files and not the manifest's {manifest.files}."
        raise BackupError(message)


def sha256_of(path: Path) -> tuple[int, str]:
    """Return size and sum of a file."""
    digest = hashlib.sha256()
    size = 0
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
    return size, digest.hexdigest()


def _compare(path: Path, size: int | None, digest: str) -> None:
    try:
        found_size, found_digest = sha256_of(path)
    except OSError as error:
        message = f"{path} cannot be read ({error.strerror}): the backup is not whole."
        raise BackupError(message) from error
    if (size is not None and found_size != size) or found_digest != digest:
        message = (
            f"{path} is not what the backup had ({found_size} bytes, sha256 {found_digest}): it "
            "was cut or altered since. Restore another backup."
        )
        raise BackupError(message)
