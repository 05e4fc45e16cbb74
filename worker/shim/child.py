"""What happens in the task's process between fork and exec, in the one order that works.

Groups and namespaces need the privileges that are dropped next; the death signal is cleared by a
change of user and so comes after it; nothing may be gained back once no_new_privs is set.
"""

from __future__ import annotations

import errno
import os
import resource
import signal

from worker.shim import linux

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from worker.shim.cgroups import Group
    from worker.shim.spec import TaskSpec

EXIT_NOT_STARTED = 127


def run(spec: TaskSpec, group: Group, streams: tuple[int, int], status: int) -> NoReturn:
    """Become the task. Lines on `status` are `warning <text>`, then `error <text>` if it failed.

    The parent knows that the program runs when `status` closes without an error line.
    """
    step = "prepare"
    try:
        os.setsid()
        _restore_signals()
        _connect(streams)
        step = "control group"
        group.join()
        step = "namespaces"
        for warning in _enter_namespaces(spec):
            os.write(status, f"warning {warning}\n".encode())
        step = "CPU affinity"
        if spec.cpus:
            os.sched_setaffinity(0, spec.cpus)
        step = "user"
        _drop_privileges(spec)
        step = f"working folder {spec.working_dir}"
        os.chdir(spec.working_dir)
        step = f"program {spec.argv[0]}"
        _execute(spec.argv, spec.environment)
    except OSError as error:
        os.write(status, f"error {step}: {error.strerror or error}\n".encode())
    except Exception as error:  # noqa: BLE001 -- the fork must not return into the supervisor
        os.write(status, f"error {step}: {type(error).__name__}: {error}\n".encode())
    os._exit(EXIT_NOT_STARTED)


def _execute(argv: list[str], environment: dict[str, str]) -> None:
    """Replace this process; os.execvpe imports modules, which the task's user may not read."""
    name = argv[0]
    folders = [""] if "/" in name else environment.get("PATH", os.defpath).split(":")
    problem: OSError = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    for folder in folders:
        try:
            os.execve(f"{folder}/{name}" if folder else name, argv, environment)  # noqa: S606 - no shell
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError as error:
            problem = error
    raise problem


def _restore_signals() -> None:
    """Undo what the interpreter and the supervisor set: a task expects the defaults."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _connect(streams: tuple[int, int]) -> None:
    nothing = os.open("/dev/null", os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(streams[0], 1)
    os.dup2(streams[1], 2)


def _enter_namespaces(spec: TaskSpec) -> list[str]:
    """Give the task its own view of a few files; return what was not permitted.

    Raises:
        OSError: a folder without which the task cannot run at all cannot be shown.
    """
    if not (spec.hosts_file or spec.binds or spec.host_name or spec.reveals):
        return []
    try:
        if os.geteuid() == 0:
            linux.unshare(linux.CLONE_NEWNS | linux.CLONE_NEWUTS)
        else:
            _unshare_as_user()
        linux.attach("none", "/", None, linux.MS_REC | linux.MS_PRIVATE)
    except OSError as error:
        if spec.reveals:
            raise
        return [f"no mount namespace here ({error.strerror}): see TERRACE_HOSTS_FILE instead"]
    _reveal(spec.reveals)
    try:
        _show_files(spec)
    except OSError as error:
        return [f"not shown to the task: {error.strerror or error} {error.filename or ''}".strip()]
    return []


def _reveal(folders: list[str]) -> None:
    """Show folders whose way the task's user may not pass, at the very same place.

    What bars the way is covered by an empty folder that anybody may pass, in which just the ways
    to these folders are made anew. The folders are opened before their ways are covered.
    """
    opened = {folder: os.open(folder, os.O_PATH | os.O_CLOEXEC) for folder in folders}
    covered = {barrier(folder) for folder in folders} - {""}
    # The outermost one is enough: what lay below it is gone with it.
    outermost = [one for one in covered if not any(is_below(one, other) for other in covered)]
    for folder in outermost:
        linux.attach("none", folder, "tmpfs", 0, "mode=0755,size=1m")
    for folder, fd in opened.items():
        os.makedirs(folder, mode=0o755, exist_ok=True)
        linux.attach(f"/proc/self/fd/{fd}", folder, None, linux.MS_BIND | linux.MS_REC)


def barrier(folder: str) -> str:
    """Return the outermost folder above `folder` that not everybody may pass; empty: none."""
    parts = folder.strip("/").split("/")
    for depth in range(1, len(parts)):
        above = "/" + "/".join(parts[:depth])
        if not os.stat(above).st_mode & 0o001:
            return above
    return ""


def is_below(folder: str, other: str) -> bool:
    """Tell whether `folder` lies below `other`, by whole parts."""
    return folder.startswith(f"{other}/")


def _show_files(spec: TaskSpec) -> None:
    if spec.hosts_file:
        linux.attach(spec.hosts_file, "/etc/hosts", None, linux.MS_BIND)
    for source, target in spec.binds.items():
        os.makedirs(target, exist_ok=True)  # the mount point alone stays on the machine, empty
        linux.attach(source, target, None, linux.MS_BIND)
    if spec.host_name:
        linux.set_host_name(spec.host_name)


def _unshare_as_user() -> None:
    """Enter own namespaces without being root: inside them we keep our id and may mount."""
    uid, gid = os.geteuid(), os.getegid()
    linux.unshare(linux.CLONE_NEWUSER | linux.CLONE_NEWNS | linux.CLONE_NEWUTS)
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{uid} {uid} 1"),
        ("gid_map", f"{gid} {gid} 1"),
    ):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as stream:
            stream.write(text)


def _drop_privileges(spec: TaskSpec) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    parent = os.getppid()
    if spec.uid >= 0:
        os.setgroups([])
        os.setresgid(spec.gid, spec.gid, spec.gid)
        os.setresuid(spec.uid, spec.uid, spec.uid)
    linux.set_property(linux.PR_SET_NO_NEW_PRIVS, 1)
    linux.set_property(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the supervisor died before the line above
        os._exit(EXIT_NOT_STARTED)
    os.umask(0o022)
