"""The few Linux calls that Python 3.11 does not offer: prctl, unshare, mount, the boot clock."""

from __future__ import annotations

import ctypes
import os
import time

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWUSER = 0x10000000

MS_RDONLY = 1
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18

_libc = ctypes.CDLL(None, use_errno=True)


def set_property(option: int, value: int) -> None:
    """Set one property of this process, see prctl(2).

    Raises:
        OSError: the kernel refused.
    """
    _check(_libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0), "prctl")


def unshare(flags: int) -> None:
    """Leave the named namespaces of the parent.

    Raises:
        OSError: not permitted, or the kernel has no such namespaces.
    """
    _check(_libc.unshare(ctypes.c_int(flags)), "unshare")


def attach(source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
    """Attach `source` at `target`, see mount(2).

    Raises:
        OSError: the kernel refused; the text names the target.
    """
    result = _libc.mount(
        source.encode(),
        target.encode(),
        kind.encode() if kind is not None else None,
        ctypes.c_ulong(flags),
        data.encode() or None,
    )
    _check(result, f"mount {target}")


def may_mount() -> bool:
    """Tell whether a process of ours may make a mount namespace; tried in a child."""
    pid = os.fork()
    if pid == 0:
        try:
            unshare(CLONE_NEWNS)
            attach("none", "/", None, MS_REC | MS_PRIVATE)
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0


def set_host_name(name: str) -> None:
    """Set the host name of the calling process's UTS namespace.

    Raises:
        OSError: not permitted.
    """
    raw = name.encode()[:64]
    _check(_libc.sethostname(raw, len(raw)), "sethostname")


def boot_seconds() -> float:
    """Return seconds since boot; goes on while the machine sleeps, cannot be set."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def boot_id() -> str:
    """Return the identifier of this boot; another one means that no process of ours is left."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as stream:
        return stream.read().strip()


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
