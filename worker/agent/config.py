"""What the person who owns the machine decides: `agent.toml` in the data folder."""

from __future__ import annotations

import sys
import tomllib
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

HOST_RUNTIME = "host"
EXAMPLE = """\
address = "10.0.0.7"                 # where other machines reach tasks of this one
jobs_folder = "/scratch/terrace"     # job folders; default: `jobs` in the data folder
user = "batch"                       # run all tasks as this user; default: one id per tenant
[runtimes.torch]
kind = "venv"                        # interpreter, venv or wrapper
path = "/opt/venvs/torch"
[runtimes.enroot]
kind = "wrapper"
argv = ["/usr/local/bin/in-image", "--"]
images = "/var/lib/enroot"           # its image files, such as nvidia+pytorch+24.01.sqsh
"""


class ConfigError(ValueError):
    """The configuration cannot be used; the text names file, key and way out."""


class RuntimeKind(StrEnum):
    """How a runtime takes a task's command line."""

    HOST = "host"
    """As it is."""
    INTERPRETER = "interpreter"
    """`python` and `python3` are this program."""
    VENV = "venv"
    """The virtual environment's programs come first on PATH."""
    WRAPPER = "wrapper"
    """The command line is appended to the wrapper's."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """One thing that this node can run commands with."""

    name: str
    kind: RuntimeKind
    path: str = ""
    argv: tuple[str, ...] = ()
    version: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    images: str = ""
    """The folder where it keeps image files; tasks rather go where theirs is."""


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """The settings of one agent, checked."""

    address: str = ""
    jobs_folder: Path | None = None
    user: str = ""
    uid_first: int = 200_000
    uid_count: int = 60_000
    may_drop_privileges: bool = True
    use_cgroups: bool = True
    port_first: int = 30_000
    port_last: int = 32_767
    download_limit_bytes: int = 10 * 2**30
    unpack_limit_bytes: int = 20 * 2**30
    keep_attempts_seconds: float = 86_400.0
    ca_file: str = ""
    runtimes: dict[str, Runtime] = field(default_factory=dict)


_TYPES: dict[str, type | tuple[type, ...]] = {
    "address": str,
    "jobs_folder": str,
    "user": str,
    "uid_first": int,
    "uid_count": int,
    "may_drop_privileges": bool,
    "use_cgroups": bool,
    "port_first": int,
    "port_last": int,
    "download_limit_bytes": int,
    "unpack_limit_bytes": int,
    "keep_attempts_seconds": (int, float),
    "ca_file": str,
    "runtimes": dict,
}


def load(path: Path) -> AgentConfig:
    """Read the file; without one, the defaults.

    Raises:
        ConfigError: it is not TOML, or a key is unknown or of the wrong type.
    """
    document: dict[str, Any] = {}
    if path.exists():
        try:
            document = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path} is not TOML: {error}") from error
    for key, value in document.items():
        kind = _TYPES.get(key)
        if kind is None:
            known = ", ".join(_TYPES)
            raise ConfigError(f"{path}: unknown key {key!r}; there are {known}")
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise ConfigError(f"{path}: {key} = {value!r} has the wrong type. Example:\n{EXAMPLE}")
    runtimes = {**_default_runtimes(), **_read_runtimes(path, document.pop("runtimes", {}))}
    jobs_folder = document.pop("jobs_folder", None)
    return AgentConfig(
        **document, runtimes=runtimes, jobs_folder=Path(jobs_folder) if jobs_folder else None
    )


def _default_runtimes() -> dict[str, Runtime]:
    """Offer the machine as it is, and the Python that the agent itself runs on."""
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.prefix != sys.base_prefix:
        python = Runtime("python", RuntimeKind.VENV, path=sys.prefix, version=version)
    else:
        python = Runtime("python", RuntimeKind.INTERPRETER, path=sys.executable, version=version)
    return {HOST_RUNTIME: Runtime(HOST_RUNTIME, RuntimeKind.HOST), "python": python}


def _read_runtimes(path: Path, document: dict[str, Any]) -> dict[str, Runtime]:
    runtimes = {}
    for name, entry in document.items():
        where = f"{path}: runtimes.{name}"
        if not isinstance(entry, dict) or entry.get("kind") not in set(RuntimeKind):
            kinds = ", ".join(RuntimeKind)
            raise ConfigError(f"{where}.kind is missing or not one of {kinds}. Example:\n{EXAMPLE}")
        kind = RuntimeKind(entry["kind"])
        argv = entry.get("argv", [])
        if not isinstance(argv, list) or not all(isinstance(part, str) for part in argv):
            raise ConfigError(f"{where}.argv is not a list of words")
        if kind is RuntimeKind.WRAPPER and not argv:
            raise ConfigError(f"{where}.argv is missing: the words that stand before the command")
        if kind in {RuntimeKind.VENV, RuntimeKind.INTERPRETER} and not entry.get("path"):
            raise ConfigError(f"{where}.path is missing: the {kind} to use")
        runtimes[name] = Runtime(
            name=name,
            kind=kind,
            path=str(entry.get("path", "")),
            argv=tuple(argv),
            version=str(entry.get("version", "")),
            environment={str(k): str(v) for k, v in entry.get("environment", {}).items()},
            images=str(entry.get("images", "")),
        )
    return runtimes
