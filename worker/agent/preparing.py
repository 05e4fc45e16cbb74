"""Turn a Launch into folders, files, an environment and the spec that a shim runs.

Everything here may be done again from the start: the attempt's folders are emptied first, so an
agent that died half way through leaves nothing behind that matters.
"""

from __future__ import annotations

import base64
import binascii
import io
import os
import re
import shutil
import subprocess
import tempfile
import threading
import urllib.parse
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Final

from worker.agent import identity, placing
from worker.agent.config import HOST_RUNTIME, AgentConfig, Runtime, RuntimeKind
from worker.agent.folders import NodeFolders, safe_name
from worker.agent.identity import Identity
from worker.agent.placing import Owner, PlacingError
from worker.agent.users import TaskUsers
from worker.protocol import FileToPlace, Launch
from worker.shim import child, processes
from worker.shim.spec import TaskSpec

BASE_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
VOLCANO_FOLDER: Final = "/etc/volcano"
HOME_PREFIXES: Final = ("/root/", "~/")
GIT_TIMEOUT_SECONDS: Final = 600.0
SECRET_MODE: Final = 0o600
REGISTRY_LOGINS: Final = "registry/config.json"
"""Where the control plane puts the logins of registries, below the folder of secrets."""
GIT_SCHEMES: Final = frozenset({"https", "file"})


class PrepareError(Exception):
    """The attempt cannot be started; the text is shown to whoever submitted the job."""


@dataclass(frozen=True, slots=True)
class AttemptFolders:
    """What an attempt finds on the disk."""

    base: Path
    shared: Path

    @property
    def work(self) -> Path:
        """The working folder, where uploaded code lies."""
        return self.base / "work"

    @property
    def output(self) -> Path:
        """What the task leaves here can be browsed and downloaded."""
        return self.base / "output"

    @property
    def home(self) -> Path:
        """HOME of the task."""
        return self.base / "home"

    @property
    def tmp(self) -> Path:
        """TMPDIR of the task."""
        return self.base / "tmp"

    @property
    def files(self) -> Path:
        """Files with an absolute path, below their path."""
        return self.base / "files"

    @property
    def secrets(self) -> Path:
        """Files of secrets; only the task's user may enter, and it is gone when the task ended."""
        return self.base / "secrets"

    @property
    def metrics(self) -> Path:
        """Where the task appends its metrics."""
        return self.base / "metrics.jsonl"

    @property
    def hosts(self) -> Path:
        """The task's hosts file."""
        return self.base / "hosts"


@dataclass(slots=True)
class Preparation:
    """The result: a spec to run, and what could not be done as asked."""

    spec: TaskSpec
    folders: AttemptFolders
    warnings: list[str] = field(default_factory=list)
    secret_environment: dict[str, str] = field(default_factory=dict, repr=False)
    """Joins the environment in the process itself; the spec lies on the disk without it."""


def attempt_folders(folders: NodeFolders, launch: Launch) -> AttemptFolders:
    """Return where an attempt's files lie."""
    job = folders.job(launch.job)
    return AttemptFolders(job / safe_name(launch.attempt, "attempt"), job / "shared")


@dataclass(frozen=True, slots=True)
class Preparer:
    """Knows what all attempts of one node have in common."""

    config: AgentConfig
    folders: NodeFolders
    users: TaskUsers
    identity: Identity
    may_mount: bool = True
    """Whether tasks see a hosts file of their own; without one they get addresses for names."""

    def prepare(self, launch: Launch, ports: dict[str, int]) -> Preparation:
        """Make the attempt ready to run. Slow (network, disk): call it in a thread.

        Raises:
            PrepareError: a file, the git address, the runtime or a variable cannot be had.
        """
        try:
            return self._prepare(launch, ports)
        except (PlacingError, ValueError) as error:
            raise PrepareError(str(error)) from error
        except OSError as error:
            raise PrepareError(
                f"{error.filename or 'folder'}: {error.strerror or error}"
            ) from error

    def _prepare(self, launch: Launch, ports: dict[str, int]) -> Preparation:
        runtime = self._runtime(launch.runtime)
        if not launch.argv and runtime.kind is not RuntimeKind.WRAPPER:
            raise PrepareError("argv is empty: the role needs a command")
        owner = self.users.owner_for(launch.tenant)
        where = attempt_folders(self.folders, launch)
        _make_folders(where, owner)
        if launch.git_url:
            _clone(launch, where, owner)
        if not self.may_mount:
            launch = with_addresses(launch)
        warnings: list[str] = []
        for file in launch.files:
            self._place(file, where, owner, warnings)
        self._place_secrets(launch, where, owner, warnings)
        _write_hosts(where.hosts, launch)
        given = replace(launch, environment={**launch.environment, **launch.secret_environment})
        environment = _environment(given, runtime, where, ports, self.identity.node)
        secret_environment = {
            name: environment.pop(name)
            for name, value in launch.secret_environment.items()
            if value in environment[name]  # else the agent's own word about the task took its place
        }
        spec = TaskSpec(
            attempt=launch.attempt,
            folder=str(self.folders.attempt(launch.attempt)),
            argv=[*runtime.argv, *launch.argv],
            environment=environment,
            working_dir=str(_working_dir(launch, runtime, where)),
            lease_file=str(self.folders.lease),
            uid=owner.uid,
            gid=owner.gid,
            cpus=list(launch.cpus),
            cpu_milli=launch.cpu_milli,
            memory_bytes=launch.memory_bytes,
            grace_seconds=launch.grace_seconds,
            time_limit_seconds=launch.time_limit_seconds or 0.0,
            log_limit_bytes=launch.log_limit_bytes,
            host_name=launch.task,
            hosts_file=str(where.hosts),
            binds=_binds(where),
            reveals=_reveals(runtime, where) if owner.uid >= 0 else [],
            use_cgroups=self.config.use_cgroups,
        )
        return Preparation(spec, where, warnings, secret_environment)

    def _runtime(self, name: str) -> Runtime:
        runtime = self.config.runtimes.get(name or HOST_RUNTIME)
        if runtime is None:
            offered = ", ".join(self.config.runtimes)
            raise PrepareError(f"runtime {name!r} is not offered here; this node has {offered}")
        return runtime

    def _place(
        self, file: FileToPlace, where: AttemptFolders, owner: Owner, warnings: list[str]
    ) -> None:
        root, path = _destination(file.path, where, warnings)
        with self._content(file) as source, placing.open_root(root) as fd:
            if file.is_archive:
                limit = self.config.unpack_limit_bytes
                placing.unpack(fd, path, source, owner=owner, limit=limit)
            else:
                limit = self.config.download_limit_bytes
                placing.place_stream(fd, path, source, mode=file.mode, owner=owner, limit=limit)

    def _place_secrets(
        self, launch: Launch, where: AttemptFolders, owner: Owner, warnings: list[str]
    ) -> None:
        """Write the files of secrets into a folder of their own, for the task's user alone."""
        if not launch.secret_files:
            return
        _own_folder(where.secrets, owner)
        with placing.open_root(where.secrets) as fd:
            for file in launch.secret_files:
                with self._content(file) as source:
                    limit = self.config.download_limit_bytes
                    placing.place_stream(
                        fd, file.path, source, mode=SECRET_MODE, owner=owner, limit=limit
                    )
        warnings.append("files of secrets lie in $TERRACE_SECRETS, below the paths that were named")

    def _content(self, file: FileToPlace) -> IO[bytes]:
        if not file.url:
            try:
                return io.BytesIO(base64.b64decode(file.content, validate=True))
            except binascii.Error as error:
                raise PrepareError(f"file {file.path!r}: content is not base64: {error}") from error
        return self._download(file)

    def _download(self, file: FileToPlace) -> IO[bytes]:
        """Fetch into a file without a name, so that nothing is left when the agent dies."""
        target = tempfile.TemporaryFile(dir=self.folders.data)  # noqa: SIM115 -- closed by caller
        left = self.config.download_limit_bytes
        request = identity.fetch_request(self.identity, file.url)
        with identity.open_url(request, self.config.ca_file) as source:
            while data := source.read(placing.COPY_BYTES):
                left -= len(data)
                if left < 0:
                    limit = self.config.download_limit_bytes
                    raise PrepareError(
                        f"file {file.path!r} has more than {limit} bytes; raise "
                        "download_limit_bytes in agent.toml or use a shared folder"
                    )
                target.write(data)
        target.seek(0)
        return target


_SHARED = threading.Lock()
"""Tasks of one job are prepared in threads at the same time, and share a folder."""


def _make_folders(where: AttemptFolders, owner: Owner) -> None:
    where.base.parent.mkdir(mode=0o711, exist_ok=True)
    where.base.parent.chmod(0o711)
    with _SHARED:
        where.shared.mkdir(mode=0o700, exist_ok=True)
        _give(where.shared, owner)
    if where.base.exists():
        shutil.rmtree(where.base)
    where.base.mkdir(mode=0o711)
    where.base.chmod(0o711)
    for folder in (where.work, where.output, where.home, where.tmp):
        _own_folder(folder, owner)
    where.files.mkdir(mode=0o755)
    fd = os.open(where.metrics, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        if owner.uid >= 0:
            os.fchown(fd, owner.uid, owner.gid)
    finally:
        os.close(fd)


def forget_secrets(where: AttemptFolders) -> None:
    """Remove the files of secrets of an attempt that is over."""
    if where.secrets.exists():
        shutil.rmtree(where.secrets)


def _own_folder(folder: Path, owner: Owner) -> None:
    folder.mkdir(mode=0o700)
    _give(folder, owner)


def _give(folder: Path, owner: Owner) -> None:
    if owner.uid >= 0:
        os.chown(folder, owner.uid, owner.gid)


def _destination(path: str, where: AttemptFolders, warnings: list[str]) -> tuple[Path, str]:
    """Return (root, path below it) of a file; absolute paths are mapped, never written to."""
    for prefix in HOME_PREFIXES:
        if path.startswith(prefix):
            return where.home, path.removeprefix(prefix)
    if not path.startswith("/"):
        return where.work, path
    if not path.startswith(f"{VOLCANO_FOLDER}/"):
        warnings.append(
            f"{path} was placed at $TERRACE_FILES{path}: the node's own path is not ours"
        )
    return where.files, path.lstrip("/")


def _binds(where: AttemptFolders) -> dict[str, str]:
    source = where.files / VOLCANO_FOLDER.lstrip("/")
    return {str(source): VOLCANO_FOLDER} if source.is_dir() else {}


def _reveals(runtime: Runtime, where: AttemptFolders) -> list[str]:
    """Return the folders that a task needs and that its user cannot reach by itself."""
    needed = {where.base.resolve(), where.shared.resolve()}
    if runtime.kind in {RuntimeKind.VENV, RuntimeKind.INTERPRETER}:
        program = Path(runtime.path)
        if runtime.kind is RuntimeKind.VENV:
            needed.add(program.resolve())
            program = program / "bin" / "python"
        needed.add(program.resolve().parent.parent)  # the installation, with its library
    return sorted(str(folder) for folder in needed if child.barrier(str(folder)))


def _working_dir(launch: Launch, runtime: Runtime, where: AttemptFolders) -> Path:
    if launch.working_dir.startswith("/"):
        # inside an image only its wrapper can go there
        is_ours = runtime.kind is not RuntimeKind.WRAPPER
        return Path(launch.working_dir) if is_ours else where.work
    if launch.working_dir in {"", "."}:
        return where.work
    return where.work.joinpath(*placing.relative_parts(launch.working_dir))


def _write_hosts(path: Path, launch: Launch) -> None:
    """Write the node's own hosts, then the job's names; the task's own name always resolves."""
    own = Path("/etc/hosts")
    lines = [own.read_text(encoding="utf-8", errors="replace").rstrip("\n")] if own.exists() else []
    lines.append("# the tasks of this job")
    lines += [f"{address}\t{name}" for name, address in launch.hosts.items()]
    if launch.task and launch.task not in launch.hosts:
        lines.append(f"127.0.0.1\t{launch.task}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    path.chmod(0o644)


def with_addresses(launch: Launch) -> Launch:
    """Write the addresses of the job's tasks wherever the control plane wrote their names.

    Only full names, `<job>-<role>-<index>.<job>`: the short ones are also what a task is called.
    """
    addresses = {name: address for name, address in launch.hosts.items() if "." in name}
    if not addresses:
        return launch
    names = "|".join(map(re.escape, addresses))
    pattern = re.compile(rf"(?<![\w.-])(?:{names})(?![\w-]|\.\w)")

    def written(text: str) -> str:
        return pattern.sub(lambda found: addresses[found[0]], text)

    def rewritten(file: FileToPlace) -> FileToPlace:
        if file.url or file.is_archive:
            return file
        try:
            text = base64.b64decode(file.content, validate=True).decode()
        except ValueError:  # not text, or not base64: placing it says so
            return file
        return replace(file, content=base64.b64encode(written(text).encode()).decode())

    return replace(
        launch,
        argv=[written(word) for word in launch.argv],
        environment={name: written(value) for name, value in launch.environment.items()},
        files=[rewritten(file) for file in launch.files],
    )


def _environment(
    launch: Launch, runtime: Runtime, where: AttemptFolders, ports: dict[str, int], node: str
) -> dict[str, str]:
    """Build all of the task's environment: nothing of the agent's own is in it."""
    for name, value in launch.environment.items():
        if not name or "=" in name or "\0" in name or "\0" in value:
            raise PrepareError(f"environment {name[:80]!r}: name or value has '=' or a NUL in it")
    devices = ",".join(launch.devices)
    environment = {
        "PATH": BASE_PATH,
        "HOME": str(where.home),
        "TMPDIR": str(where.tmp),
        "SHELL": "/bin/sh",
        "LANG": "C.UTF-8",
        "HOSTNAME": launch.task,
        "PYTHONUNBUFFERED": "1",
        **runtime.environment,
        **launch.environment,
        "CUDA_VISIBLE_DEVICES": devices,
        "NVIDIA_VISIBLE_DEVICES": devices,
        processes.MARKER: launch.attempt,
        processes.NODE_MARKER: node,
        "TERRACE_METRICS": str(where.metrics),
        "TERRACE_OUTPUT": str(where.output),
        "TERRACE_JOB_DIR": str(where.shared),
        "TERRACE_FILES": str(where.files),
        "TERRACE_HOSTS_FILE": str(where.hosts),
    }
    if launch.secret_files:
        environment["TERRACE_SECRETS"] = str(where.secrets)
    if (where.secrets / REGISTRY_LOGINS).is_file():
        logins = where.secrets / REGISTRY_LOGINS
        environment.setdefault("DOCKER_CONFIG", str(logins.parent))
        environment.setdefault("REGISTRY_AUTH_FILE", str(logins))
    for label, port in ports.items():
        environment[f"TERRACE_PORT_{label.upper().replace('-', '_')}"] = str(port)
    _apply_runtime(environment, launch, runtime, where)
    return environment


def _apply_runtime(
    environment: dict[str, str], launch: Launch, runtime: Runtime, where: AttemptFolders
) -> None:
    if runtime.kind is RuntimeKind.VENV:
        environment["VIRTUAL_ENV"] = runtime.path
        environment["PATH"] = f"{runtime.path}/bin:{environment['PATH']}"
    elif runtime.kind is RuntimeKind.INTERPRETER:
        folder = where.base / "bin"
        folder.mkdir(mode=0o755)
        for name in ("python", "python3"):
            (folder / name).symlink_to(runtime.path)
        environment["PATH"] = f"{folder}:{environment['PATH']}"
    elif runtime.kind is RuntimeKind.WRAPPER:
        environment["TERRACE_WORKING_DIR"] = launch.working_dir


def _clone(launch: Launch, where: AttemptFolders, owner: Owner) -> None:
    """Clone as the task's user; address and revision can be neither options nor helpers."""
    scheme = urllib.parse.urlsplit(launch.git_url).scheme
    if scheme not in GIT_SCHEMES:
        raise PrepareError(f"git_url {launch.git_url[:200]!r}: https://... or file:///... only")
    revision = launch.git_revision or "HEAD"
    if revision.startswith("-") or any(c.isspace() or not c.isprintable() for c in revision):
        raise PrepareError(f"git_revision {revision[:80]!r} is no branch, tag or commit")
    clone = ["clone", "--quiet", "--no-checkout", "--no-recurse-submodules", "--"]
    _git([*clone, launch.git_url, str(where.work)], where, owner)
    for candidate in (f"refs/remotes/origin/{revision}", revision):
        found = _git(
            ["-C", str(where.work), "rev-parse", "--verify", "--quiet", f"{candidate}^{{commit}}"],
            where,
            owner,
            may_fail=True,
        )
        if found:
            _git(["-C", str(where.work), "checkout", "--quiet", "--detach", found], where, owner)
            return
    raise PrepareError(f"git_revision {revision!r} is not in {launch.git_url}")


def _git(
    arguments: list[str], where: AttemptFolders, owner: Owner, *, may_fail: bool = False
) -> str:
    settings = where.base / "gitconfig"  # not in a folder that the task's user may write to
    if not settings.exists():
        settings.write_text("[safe]\n\tdirectory = *\n", encoding="utf-8")
        settings.chmod(0o644)
    environment = {
        "PATH": BASE_PATH,
        "HOME": str(where.home),
        "LANG": "C.UTF-8",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": str(settings),
        "GIT_ALLOW_PROTOCOL": ":".join(sorted(GIT_SCHEMES)),
    }
    is_other = owner.uid >= 0
    try:
        done = subprocess.run(  # noqa: S603 -- an argument list, its parts checked by the caller
            ["git", *arguments],  # noqa: S607 -- found on the fixed PATH above
            env=environment,
            capture_output=True,
            timeout=GIT_TIMEOUT_SECONDS,
            check=False,
            cwd="/",
            text=True,
            errors="replace",
            user=owner.uid if is_other else None,
            group=owner.gid if is_other else None,
            extra_groups=[] if is_other else None,
        )
    except FileNotFoundError as error:
        raise PrepareError(
            "git is not installed on this node; install it or upload files"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise PrepareError(f"git took longer than {GIT_TIMEOUT_SECONDS:g} s") from error
    if done.returncode != 0 and not may_fail:
        raise PrepareError(f"git {arguments[0]} failed: {done.stderr.strip()[-500:]}")
    return done.stdout.strip() if done.returncode == 0 else ""
