"""The files' part: uploaded code, outputs and finished logs, through Django's storage API.

A name in the store is used once and its content never changes, so that a file which was copied
need not be copied again.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from django.core.files import File
from django.core.files.storage import FileSystemStorage, Storage, default_storage

from controlplane.backup.errors import BackupError
from controlplane.backup.manifest import CHUNK_BYTES, FileEntry

ASIDE = ".before-restore"


def names(storage: Storage = default_storage, folder: str = "") -> Iterator[str]:
    """Yield the names of all files in the store, folder by folder, in order."""
    try:
        folders, files = storage.listdir(folder)
    except FileNotFoundError:
        return  # nothing was ever stored, or the folder was emptied and removed just now
    for name in sorted(files):
        if name:  # some S3 stores list the folder itself
            yield str(PurePosixPath(folder) / name)
    for name in sorted(folders):
        if folder or name != ASIDE:
            yield from names(storage, str(PurePosixPath(folder) / name))


def copy_out(target: Path, known: dict[str, FileEntry], storage: Storage = default_storage) -> None:
    """Copy into `target` what `known` lacks, and add it there.

    A file that is deleted between listing and reading is left out: no row names it any more.
    """
    for name in names(storage):
        if name in known:
            continue
        path = target / name
        if not path.resolve().is_relative_to(target.resolve()):
            message = f"The store has a file named {name!r}, which leaves its folder."
            raise BackupError(message)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        digest = hashlib.sha256()
        size = 0
        try:
            with storage.open(name, "rb") as source, path.open("wb") as copy:
                while chunk := source.read(CHUNK_BYTES):
                    copy.write(chunk)
                    digest.update(chunk)
                    size += len(chunk)
                copy.flush()
                os.fsync(copy.fileno())
        except FileNotFoundError:
            path.unlink(missing_ok=True)
            continue
        known[name] = FileEntry(name=name, bytes=size, sha256=digest.hexdigest())


def copy_in(source: Path, entries: Iterable[FileEntry], storage: Storage = default_storage) -> None:
    """Put the files of a backup into the store under their names.

    Raises:
        BackupError: the store gave one of them another name.
    """
    for entry in entries:
        with (source / entry.name).open("rb") as stream:
            name = storage.save(entry.name, File(stream, name=entry.name))
        if name != entry.name:
            message = f"The store kept {entry.name!r} as {name!r}: it was not empty."
            raise BackupError(message)
    folder = _folder(storage)
    if folder is not None and folder.exists():
        _give_to_owner(folder)


def is_empty(storage: Storage = default_storage) -> bool:
    """Tell whether the store has no file."""
    return next(names(storage), None) is None


# --- standing aside -------------------------------------------------------------------------------
# In a folder, what was there steps aside into a folder of its own. In a bucket a file of the same
# name is replaced, and what the backup does not have stays, named by no row.


def set_aside(storage: Storage = default_storage) -> None:
    """Put what is in the folder of files into one of its own, which is no part of the store."""
    folder = _folder(storage)
    if folder is not None and folder.exists():
        (folder / ASIDE).mkdir(mode=0o700, exist_ok=True)
        _move(folder, folder / ASIDE)
        _give_to_owner(folder)


def put_back(storage: Storage = default_storage) -> None:
    """Undo an unfinished restore."""
    folder = _folder(storage)
    if folder is not None and (folder / ASIDE).exists():
        for path in _visible(folder):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        _move(folder / ASIDE, folder)
        (folder / ASIDE).rmdir()


def drop_aside(storage: Storage = default_storage) -> None:
    """Finish: what was there before is gone."""
    folder = _folder(storage)
    if folder is not None and (folder / ASIDE).exists():
        shutil.rmtree(folder / ASIDE)


def _move(source: Path, target: Path) -> None:
    for path in _visible(source):
        path.rename(target / path.name)


def _visible(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.iterdir()) if path.name != ASIDE]


def _folder(storage: Storage) -> Path | None:
    return Path(storage.location) if isinstance(storage, FileSystemStorage) else None


def _give_to_owner(folder: Path) -> None:
    """Let what root has written belong to whom the folder belongs, who will serve it."""
    if os.geteuid() != 0:
        return
    owner = folder.stat()
    for path in folder.rglob("*"):
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
