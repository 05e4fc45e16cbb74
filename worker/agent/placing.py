"""Put files where a task finds them, without ever following a link that somebody else made.

Every path is walked part by part from an open folder with O_NOFOLLOW, so neither `..` nor a link in
an archive, in a cloned repository or left by another attempt leads out of the root.
"""

from __future__ import annotations

import gzip
import lzma
import os
import posixpath
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

MEMBERS_LIMIT: Final = 50_000
PATH_LIMIT: Final = 1_024
COPY_BYTES: Final = 1 << 20
UNREADABLE: Final = (
    tarfile.TarError,
    zipfile.BadZipFile,
    gzip.BadGzipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    NotImplementedError,
)
"""What the readers of archives raise at one that is none, is cut off, or is damaged inside."""


class PlacingError(Exception):
    """A file cannot be placed; the text names it, the limit, and the way out."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Whom what is placed will belong to; -1: leave it as it is created."""

    uid: int = -1
    gid: int = -1


def relative_parts(path: str) -> list[str]:
    """Split a path below a root into its parts.

    Raises:
        PlacingError: it is absolute, empty, too long, or has `..` or NUL.
    """
    parts = [part for part in path.split("/") if part not in {"", "."}]
    if path.startswith("/") or ".." in parts or "\0" in path:
        raise PlacingError(f"file {path[:200]!r}: has to lie below the task's folder, without ..")
    if not parts or len(path) > PATH_LIMIT:
        raise PlacingError(f"file {path[:200]!r}: 1 to {PATH_LIMIT} characters are possible")
    return parts


@contextmanager
def open_root(folder: Path) -> Iterator[int]:
    """Open the folder that everything has to stay in."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def place_stream(
    root: int, path: str, source: IO[bytes], *, mode: int, owner: Owner, limit: int
) -> int:
    """Write a regular file below `root`, replacing one; return its size.

    Raises:
        PlacingError: the path leads out, a part of it is a link or a file, or it exceeds `limit`.
    """
    parts = relative_parts(path)
    with _parent(root, parts, owner) as parent:
        _remove_file(parent, parts[-1], path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(parts[-1], flags, 0o600, dir_fd=parent)
        with os.fdopen(fd, "wb") as stream:
            size = 0
            while data := source.read(COPY_BYTES):
                size += len(data)
                if size > limit:
                    raise PlacingError(f"file {path!r}: more than the {limit} bytes that are left")
                stream.write(data)
            os.fchmod(fd, mode & 0o777)
            if owner.uid >= 0:
                os.fchown(fd, owner.uid, owner.gid)
    return size


def place_folder(root: int, path: str, *, owner: Owner) -> None:
    """Make a folder and those above it below `root`.

    Raises:
        PlacingError: the path leads out or a part of it is no folder.
    """
    with _parent(root, [*relative_parts(path), ""], owner):
        pass


def place_link(root: int, path: str, target: str, *, owner: Owner) -> None:
    """Make a symbolic link whose target stays below `root`. Nothing here ever follows it.

    Raises:
        PlacingError: link or target leads out.
    """
    parts = relative_parts(path)
    resolved = posixpath.normpath(posixpath.join(*parts[:-1], target))
    if target.startswith("/") or resolved.split("/")[0] == "..":
        raise PlacingError(f"link {path!r} points out of the task's folder, to {target[:200]!r}")
    with _parent(root, parts, owner) as parent:
        _remove_file(parent, parts[-1], path)
        os.symlink(target, parts[-1], dir_fd=parent)
        if owner.uid >= 0:
            os.chown(parts[-1], owner.uid, owner.gid, dir_fd=parent, follow_symlinks=False)


def unpack(root: int, path: str, archive: IO[bytes], *, owner: Owner, limit: int) -> None:
    """Unpack a tar (also compressed) or zip at `path` below `root`.

    Regular files, folders and links that stay inside are made; other kinds are refused, since
    leaving them out would run something else than what was sent. Sizes are counted as they come
    out, whatever the archive claims.

    Raises:
        PlacingError: no such archive, a member leads out or is of another kind, or a limit.
    """
    prefix = "" if path in {"", "."} else "/".join(relative_parts(path)) + "/"
    is_zip = zipfile.is_zipfile(archive)
    archive.seek(0)
    try:
        if is_zip:
            _unpack_zip(root, prefix, archive, owner, limit)
        else:
            _unpack_tar(root, prefix, archive, owner, limit)
    except UNREADABLE as error:
        raise PlacingError(
            f"archive for {path or '.'!r}: not a readable tar or zip: {error}"
        ) from error


def _unpack_tar(root: int, prefix: str, archive: IO[bytes], owner: Owner, limit: int) -> None:
    with tarfile.open(fileobj=archive, mode="r:*") as tar:
        for count, member in enumerate(tar):
            _check_count(count)
            name = prefix + _strip(member.name)
            if member.isdir():
                if _strip(member.name):
                    place_folder(root, name, owner=owner)
            elif member.issym():
                place_link(root, name, member.linkname, owner=owner)
            elif member.isreg():
                source = tar.extractfile(member)
                if source is None:
                    raise PlacingError(f"archive member {name!r} has no content")
                mode = member.mode | 0o600
                limit -= place_stream(root, name, source, mode=mode, owner=owner, limit=limit)
            else:
                raise PlacingError(
                    f"archive member {name!r} is neither file, folder nor symbolic link; "
                    "pack it without devices, pipes and hard links (tar --hard-dereference)"
                )


def _unpack_zip(root: int, prefix: str, archive: IO[bytes], owner: Owner, limit: int) -> None:
    with zipfile.ZipFile(archive) as container:
        for count, member in enumerate(container.infolist()):
            _check_count(count)
            mode = member.external_attr >> 16
            name = prefix + _strip(member.filename)
            if member.is_dir():
                if _strip(member.filename):
                    place_folder(root, name, owner=owner)
                continue
            if member.flag_bits & 1:
                raise PlacingError(f"archive member {name!r} is encrypted; pack it without")
            with container.open(member) as source:
                if stat.S_ISLNK(mode):
                    target = source.read(PATH_LIMIT).decode("utf-8", "surrogateescape")
                    place_link(root, name, target, owner=owner)
                else:
                    permissions = (mode & 0o777 or 0o644) | 0o600
                    limit -= place_stream(
                        root, name, source, mode=permissions, owner=owner, limit=limit
                    )


def _strip(name: str) -> str:
    """Drop the `./` and the closing slash that packers write."""
    while name.startswith("./"):
        name = name[2:]
    name = name.rstrip("/")
    return "" if name == "." else name


def _check_count(count: int) -> None:
    if count >= MEMBERS_LIMIT:
        raise PlacingError(
            f"archive has more than {MEMBERS_LIMIT} members; split or pack it inside"
        )


@contextmanager
def _parent(root: int, parts: list[str], owner: Owner) -> Iterator[int]:
    """Open the folder that the last part lies in, making those that are missing."""
    fd = os.dup(root)
    try:
        for part in parts[:-1]:
            below = _enter(fd, part, owner, "/".join(parts))
            os.close(fd)
            fd = below
        yield fd
    finally:
        os.close(fd)


def _enter(parent: int, part: str, owner: Owner, path: str) -> int:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        os.mkdir(part, 0o755, dir_fd=parent)
        is_new = True
    except FileExistsError:
        is_new = False
    except OSError as error:
        raise PlacingError(f"file {path!r}: {error.strerror}") from error
    try:
        fd = os.open(part, flags, dir_fd=parent)
    except OSError as error:
        raise PlacingError(f"file {path!r}: {part!r} is a link or no folder") from error
    if is_new and owner.uid >= 0:
        os.fchown(fd, owner.uid, owner.gid)
    return fd


def _remove_file(parent: int, name: str, path: str) -> None:
    try:
        os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        return
    except OSError as error:
        raise PlacingError(f"file {path!r}: a folder of that name is there") from error
