"""Choose whom the servers run as: never root."""

import os
import pwd
from pathlib import Path

from controlplane.supervisor.errors import StartError
from controlplane.supervisor.processes import Account


def service_account(wanted: str | None, checkout: Path) -> Account | None:
    """Return the account for PostgreSQL, Redis, web and workers, or None to stay who we are.

    Only root can and must choose: the account named by `wanted`, else the owner of the checkout,
    else `nobody`.

    Raises:
        StartError: `wanted` names nobody, or root.
    """
    if os.geteuid() != 0:
        return None
    if wanted:
        return _account(wanted)
    owner = checkout.stat().st_uid
    if owner != 0:
        try:
            return _of(pwd.getpwuid(owner))
        except KeyError:
            pass  # an owner without an entry, as in a container's volume: PostgreSQL needs one
    return _account("nobody")


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
    return Account(uid=entry.pw_uid, gid=entry.pw_gid, name=entry.pw_name, home=entry.pw_dir)
