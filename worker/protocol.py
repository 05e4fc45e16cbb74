"""The messages between gateway and agent: one JSON object a WebSocket text frame.

Every message is a frozen dataclass; `encode` adds its name as `type`, `decode` checks name, fields
and types. Unknown fields are ignored (a newer peer), unknown types are refused. The gateway speaks
versions VERSION and VERSION - 1.

Delivery is at least once in both directions, effects are exactly once by attempt id:
- reports carry (session, seq); the gateway acknowledges the highest seq that is committed; the
  agent keeps unacknowledged reports in its spool and repeats them after a reconnect;
- commands carry the scheduler's epoch; the agent persists the highest seen and refuses lower ones.

Units: milli-CPU, bytes, milli-GPU, seconds. Times are seconds since the epoch on the node's clock
and are shown, never compared between machines.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from dataclasses import dataclass, field
from typing import Any

VERSION = 1
MAX_FRAME_BYTES = 1_048_576


class ProtocolError(ValueError):
    """A frame that is not a message of this protocol; the text names the field."""


# --- agent -> gateway -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """One accelerator as the node reports it; `links` maps peer uuid -> NVLink, PIX, PXB, SYS."""

    uuid: str
    index: int
    model: str = ""
    memory_bytes: int = 0
    is_healthy: bool = True
    health_reason: str = ""
    numa_node: int = -1
    links: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RuntimeInfo:
    """What the node can run something with; `kind` is interpreter, venv or wrapper."""

    name: str
    kind: str
    version: str = ""
    images: dict[str, int] = field(default_factory=dict)
    """Names of the image files that it holds, without their endings, and their bytes."""


@dataclass(frozen=True, slots=True)
class AttemptInventory:
    """An attempt that the node holds: live, or ended and not yet acknowledged."""

    attempt: str
    state: str
    """Starting, Running, Stopping or Exited."""


@dataclass(frozen=True, slots=True)
class Hello:
    """First frame of a session. The credential travels in the Authorization header, not here."""

    version: int
    node: str
    boot_id: str
    agent_version: str
    highest_epoch: int
    cpu_milli: int
    memory_bytes: int
    sockets: int = 1
    numa_nodes: list[dict[str, Any]] = field(default_factory=list)
    """[{"id": 0, "cpus": "0-3", "memory_bytes": n}]."""
    devices: list[DeviceInfo] = field(default_factory=list)
    runtimes: list[RuntimeInfo] = field(default_factory=list)
    attempts: list[AttemptInventory] = field(default_factory=list)
    address: str = ""
    """Where tasks of this node are reached by others; empty: as the connection comes from."""
    is_simulated: bool = False
    warnings: list[str] = field(default_factory=list)
    """What the node cannot do, shown as a banner: runs as root without a user to drop to, ..."""


@dataclass(frozen=True, slots=True)
class AttemptReport:
    """What happened to one attempt. `state` is Starting, Running, Stopping or Exited."""

    attempt: str
    state: str
    at: float
    exit_code: int | None = None
    signal: int | None = None
    is_oom: bool = False
    reason: str = ""
    """A code where the agent ended it or could not start it: LaunchFailed, LeaseLapsed, ..."""
    message: str = ""
    address: str = ""
    ports: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LogChunk:
    """Bytes of an attempt's output, base64; `offset` is the position in that stream."""

    attempt: str
    stream: str
    offset: int
    data: str
    is_dropped: bool = False
    """The stream reached its cap; this chunk is the marker line."""


@dataclass(frozen=True, slots=True)
class MetricPoint:
    """One JSON line that the task appended to the file named by TERRACE_METRICS."""

    attempt: str
    line: int
    at: float
    values: dict[str, float]


@dataclass(frozen=True, slots=True)
class UsageSample:
    """Measured use of an attempt, a device (`gpu:<uuid>`) or the node (`node`)."""

    subject: str
    at: float
    cpu_milli: int | None = None
    memory_bytes: int | None = None
    gpu_percent: float | None = None
    gpu_memory_bytes: int | None = None
    temperature_celsius: float | None = None
    power_watts: float | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """Deltas since the last frame; `seq` counts up by one within the session."""

    session: str
    seq: int
    attempts: list[AttemptReport] = field(default_factory=list)
    logs: list[LogChunk] = field(default_factory=list)
    metrics: list[MetricPoint] = field(default_factory=list)
    usage: list[UsageSample] = field(default_factory=list)
    devices: list[DeviceInfo] = field(default_factory=list)
    """Given whole when any device's health changed; empty: no change."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The agent lives; the answer renews the lease of its tasks."""

    session: str
    sent: float = 0.0
    """The node's boot clock; comes back in `Ack.echo`. The lease counts from here, not from when
    the answer arrived: the agent's deadline is then never later than the server's."""


# --- gateway -> agent -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Welcome:
    """The session is open. Attempts in `stop` are unknown or superseded and are ended at once."""

    version: int
    session: str
    session_epoch: int
    lease_seconds: float
    heartbeat_seconds: float
    stop: list[str] = field(default_factory=list)


SUPERSEDED = "superseded"
"""A newer session of the node was opened, elsewhere: the agent must not come back by itself."""
LAPSED = "lapsed"
"""The node was silent for too long and given up: the agent opens a new session."""
REMOVED = "removed"
"""The node is not part of the cluster any more."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The session is not opened, or is ended; `code` is stable, `message` is for the operator."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class FileToPlace:
    """A file the task finds under its working folder (or at an absolute path the node maps)."""

    path: str
    content: str = ""
    """base64"""
    url: str = ""
    """Fetched with the node's credential instead of `content`."""
    mode: int = 0o644
    is_archive: bool = False
    """tar or zip, unpacked safely at `path`."""


@dataclass(frozen=True, slots=True)
class Launch:
    """Start one attempt. The control plane has decided all of it; argv is never a shell string."""

    command_id: int
    epoch: int
    attempt: str
    job: str
    task: str
    """`<job>-<role>-<index>`: the host name that the task sees."""
    tenant: str
    argv: list[str]
    runtime: str
    environment: dict[str, str] = field(default_factory=dict)
    files: list[FileToPlace] = field(default_factory=list)
    hosts: dict[str, str] = field(default_factory=dict)
    """Name -> address, for the task's hosts file."""
    git_url: str = ""
    git_revision: str = ""
    working_dir: str = ""
    cpu_milli: int = 0
    memory_bytes: int = 0
    cpus: list[int] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)
    ports: list[str] = field(default_factory=list)
    """Labels; the agent chooses numbers and reports them."""
    grace_seconds: float = 30.0
    time_limit_seconds: float | None = None
    log_limit_bytes: int = 1_073_741_824
    simulate_seconds: float | None = None
    """Simulated nodes only: how long the pretended process runs."""
    secret_environment: dict[str, str] = field(default_factory=dict, repr=False)
    """Joins the environment of the process, and nothing else: an agent never writes it down."""
    secret_files: list[FileToPlace] = field(default_factory=list, repr=False)
    """Below the task's folder of secrets, which is gone when the task has ended."""
    are_secrets_left_out: bool = False
    """In the agent's own record of the command: there were secrets, and they are not here."""


@dataclass(frozen=True, slots=True)
class Stop:
    """End one attempt: SIGTERM, after `grace_seconds` SIGKILL to all that is left of it."""

    command_id: int
    epoch: int
    """0: no scheduler decided it but, say, a user; such an order is never stale."""
    attempt: str
    grace_seconds: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Ack:
    """Reports up to and including `seq` are committed; with `echo` it renews the lease."""

    session: str
    seq: int
    lease_seconds: float
    echo: float = 0.0
    """`Heartbeat.sent` of the heartbeat that this answers; 0: this renews nothing."""


@dataclass(frozen=True, slots=True)
class CommandDone:
    """Agent -> gateway: the command is persisted on the node; it need not be repeated."""

    command_id: int
    refused: str = ""
    """A code where the agent will never carry it out: StaleEpoch. Nothing was started."""


FROM_AGENT = (Hello, Report, Heartbeat, CommandDone)
FROM_GATEWAY = (Welcome, Refused, Launch, Stop, Ack)

FromAgent = Hello | Report | Heartbeat | CommandDone
FromGateway = Welcome | Refused | Launch | Stop | Ack
Message = FromAgent | FromGateway

_BY_NAME: dict[str, type[Any]] = {cls.__name__: cls for cls in (*FROM_AGENT, *FROM_GATEWAY)}


def encode(message: Message) -> str:
    """Return the message as one JSON text frame."""
    return json.dumps(
        {"type": type(message).__name__, **dataclasses.asdict(message)}, separators=(",", ":")
    )


def decode(frame: str | bytes) -> Message:
    """Parse one frame.

    Raises:
        ProtocolError: the frame is too long, no JSON object, of unknown type, or a field is
            missing or of the wrong type; the text names it.
    """
    if len(frame) > MAX_FRAME_BYTES:
        raise ProtocolError(f"frame has {len(frame)} bytes, the limit is {MAX_FRAME_BYTES}")
    try:
        document = json.loads(frame, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"frame is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise ProtocolError("frame is not a JSON object")
    cls = _BY_NAME.get(str(document.get("type", "")))
    if cls is None:
        raise ProtocolError(f"type: unknown message {document.get('type')!r}")
    return typing.cast("Message", _build(cls, document, cls.__name__))


def _refuse_constant(name: str) -> float:
    """Refuse NaN and Infinity, which are no JSON and no database takes."""
    raise ValueError(f"{name} is not a number")


def _build(annotation: Any, value: Any, path: str) -> Any:
    origin = typing.get_origin(annotation)
    if dataclasses.is_dataclass(annotation):
        return _build_dataclass(typing.cast("type[Any]", annotation), value, path)
    if origin in (types.UnionType, typing.Union):
        if value is None:
            return None
        (inner,) = (a for a in typing.get_args(annotation) if a is not type(None))
        return _build(inner, value, path)
    if origin is list:
        if not isinstance(value, list):
            raise ProtocolError(f"{path}: expected a list")
        (inner,) = typing.get_args(annotation)
        return [_build(inner, item, f"{path}[{i}]") for i, item in enumerate(value)]
    if origin is dict:
        if not isinstance(value, dict):
            raise ProtocolError(f"{path}: expected an object")
        inner = typing.get_args(annotation)[1]
        return {str(key): _build(inner, item, f"{path}.{key}") for key, item in value.items()}
    return _scalar(annotation, value, path)


def _scalar(annotation: Any, value: Any, path: str) -> Any:
    if annotation is Any:
        return value
    if annotation is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, annotation) or (annotation is int and isinstance(value, bool)):
        raise ProtocolError(f"{path}: expected {annotation.__name__}, got {type(value).__name__}")
    return value


def _build_dataclass(cls: type[Any], value: Any, path: str) -> Any:
    if not isinstance(value, dict):
        raise ProtocolError(f"{path}: expected an object")
    arguments = {}
    for name, annotation, is_required, plain in _FIELDS[cls]:
        if name in value:
            given = value[name]
            # Most are what they should be; only for the others a path is worth writing.
            if type(given) not in plain:
                given = _build(annotation, given, f"{path}.{name}")
            arguments[name] = given
        elif is_required:
            raise ProtocolError(f"{path}.{name}: missing")
    return cls(**arguments)


def _plain(annotation: Any) -> frozenset[type]:
    """Return the types whose values a field takes as they are."""
    choices = typing.get_args(annotation) or (annotation,)
    return frozenset(one for one in choices if one in {str, int, float, bool, type(None)})


def _fields(cls: type[Any]) -> list[tuple[str, Any, bool, frozenset[type]]]:
    """Return (name, type, is required, plain) of a message; resolving the types is what costs."""
    hints = typing.get_type_hints(cls)
    return [
        (
            item.name,
            hints[item.name],
            item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING,
            _plain(hints[item.name]),
        )
        for item in dataclasses.fields(cls)
    ]


_PARTS = (
    DeviceInfo,
    RuntimeInfo,
    AttemptInventory,
    AttemptReport,
    LogChunk,
    MetricPoint,
    UsageSample,
    FileToPlace,
)
_FIELDS = {cls: _fields(cls) for cls in (*_BY_NAME.values(), *_PARTS)}
