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


def make_private(folder: Path, account: Account | None) -> Path:
    """Make `folder` if it is missing, close it to others, and hand it to the account."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        message = f"{folder} is not a folder; move it away."
        raise StartError(message)
    wanted = account.uid if account else os.geteuid()
    if found.st_uid != wanted:
        if os.geteuid() != 0 or account is None:
            message = (
                f"{folder} belongs to user {found.st_uid}, and Terrace runs as {wanted}: run it as "
                "that user, or set TERRACE_DATA to a folder of your own."
            )
            raise StartError(message)
        os.chown(folder, account.uid, account.gid)
    if stat.S_IMODE(found.st_mode) != 0o700:
        folder.chmod(0o700)
    return folder


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
