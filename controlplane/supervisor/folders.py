"""Where the embedded services keep data and sockets, with the rights that each needs."""

import hashlib
import os
import re
import stat
import tempfile
from pathlib import Path

from controlplane.supervisor.errors import StartError
from controlplane.supervisor.processes import Account

# A socket's path may have 107 bytes; PostgreSQL adds `/.s.PGSQL.5432.lock`, and libpq reads a
# comma as the start of the next host.
LONGEST_SOCKET_FOLDER = 80
PLAIN_PATH = re.compile(r"[A-Za-z0-9_./-]+")
PRIVATE = 0o700
# Others may pass through to what is theirs, and see no names.
PASSAGE = 0o711


def make_data_folder(folder: Path, account: Account | None) -> Path:
    """Make the folder that holds all the others.

    It stays ours even where the servers run as somebody else: who owns a folder can swap what
    root is about to open in it.
    """
    return _make(folder, os.geteuid(), os.getegid(), PASSAGE if account else PRIVATE)


def make_private(folder: Path, account: Account | None) -> Path:
    """Make `folder` if it is missing, close it to others, and hand it to the account."""
    if account is None:
        return _make(folder, os.geteuid(), os.getegid(), PRIVATE)
    return _make(folder, account.uid, account.gid, PRIVATE)


def socket_folder(data_folder: Path, account: Account | None) -> Path:
    """Return a folder for sockets: inside the data folder, or a short one where that is too long.

    The short one is named after user and data folder, so that two users and two checkouts differ,
    and is refused if somebody else made it first.
    """
    own = data_folder / "run"
    if len(os.fsencode(own)) <= LONGEST_SOCKET_FOLDER and PLAIN_PATH.fullmatch(str(own)):
        return make_private(own, account)
    digest = hashlib.sha256(os.fsencode(data_folder)).hexdigest()[:12]
    uid = account.uid if account else os.geteuid()
    short = Path(tempfile.gettempdir()) / f"terrace-{uid}-{digest}"
    if len(os.fsencode(short)) > LONGEST_SOCKET_FOLDER:
        short = Path("/tmp") / short.name  # noqa: S108 -- 0700 and its owner checked below
    if short.exists() and short.lstat().st_uid != uid:
        message = f"{short} belongs to another user; remove it or set TMPDIR to a folder of yours."
        raise StartError(message)
    return make_private(short, account)


def _make(folder: Path, uid: int, gid: int, mode: int) -> Path:
    folder.mkdir(mode=mode, parents=True, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        message = f"{folder} is not a folder; move it away."
        raise StartError(message)
    if found.st_uid != uid:
        if os.geteuid() != 0:
            message = (
                f"{folder} belongs to user {found.st_uid}, and Terrace runs as {uid}: run it as "
                "that user, or set TERRACE_DATA to a folder of your own."
            )
            raise StartError(message)
        os.chown(folder, uid, gid, follow_symlinks=False)
    if stat.S_IMODE(found.st_mode) != mode:
        folder.chmod(mode)
    return folder
