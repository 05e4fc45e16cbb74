"""Choose whom the servers run as: never root."""

import os
import pwd
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from controlplane.supervisor.errors import StartError
from controlplane.supervisor.processes import Account, command_as


def service_account(wanted: str | None, checkout: Path) -> Account | None:
    """Return the account for PostgreSQL, Redis, web and workers, or None to stay who we are.

    Only root can and must choose: the account named by `wanted`, else the owner of the checkout,
    else `nobody`. Where the checkout or the interpreter lies in a folder that only root may enter
    (a clone in /root), the account keeps the right to read, and nothing else of root's.

    Raises:
        StartError: `wanted` names nobody, or root; or the account cannot use the checkout.
    """
    if os.geteuid() != 0:
        return None
    account = _wanted_or_owner(wanted, checkout)
    reason = _why_out_of_reach(account, checkout)
    if reason is None:
        return account
    reading = replace(account, may_read_all=True)
    if _why_out_of_reach(reading, checkout) is None:
        return reading
    message = (
        f"Terrace was started as root and runs its servers as {account.name}, who cannot use "
        f"{sys.executable} on {checkout} ({reason}). Move the checkout to a folder that others may "
        "enter, for example /srv/terrace, or start it as an ordinary user."
    )
    raise StartError(message)


def _wanted_or_owner(wanted: str | None, checkout: Path) -> Account:
    if wanted:
        return _account(wanted)
    owner = checkout.stat().st_uid
    if owner != 0:
        try:
            return _of(pwd.getpwuid(owner))
        except KeyError:
            pass  # an owner without an entry, as in a container's volume: PostgreSQL needs one
    return _account("nobody")


def _why_out_of_reach(account: Account, checkout: Path) -> str | None:
    """Try this interpreter on this code as the account; None if that works.

    The version is compared because a Python whose own library is out of reach may find another's.
    """
    script = "import sys, controlplane.env; sys.exit(sys.version != sys.argv[1])"
    done = subprocess.run(
        command_as([sys.executable, "-c", script, sys.version], account),
        capture_output=True,
        check=False,
        cwd="/",
        env={"PATH": os.defpath, "PYTHONPATH": str(checkout), "HOME": "/nonexistent"},
    )
    if done.returncode == 0:
        return None
    return (
        done.stderr.decode(errors="replace").strip().splitlines() or ["it finds another Python"]
    )[-1]


def _account(name: str) -> Account:
    try:
        entry = pwd.getpwuid(int(name)) if name.isdigit() else pwd.getpwnam(name)
    except KeyError:
        message = f"TERRACE_RUN_AS={name!r} names no user of this machine, for example nobody."
        raise StartError(message) from None
    if entry.pw_uid == 0:
        message = f"TERRACE_RUN_AS={name!r} is root, which PostgreSQL refuses; name another user."
        raise StartError(message)
    return _of(entry)


def _of(entry: pwd.struct_passwd) -> Account:
    return Account(uid=entry.pw_uid, gid=entry.pw_gid, name=entry.pw_name)
