"""Between the wire's messages and the domain's values; what no row could hold is refused here."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from scheduling.domain import launches, nodes, reports
from worker.protocol import (
    AttemptReport,
    DeviceInfo,
    FileToPlace,
    Hello,
    Launch,
    LogChunk,
    MetricPoint,
    Report,
    RuntimeInfo,
    Stop,
    UsageSample,
)

REASON_LENGTH: Final = 60
MESSAGE_LENGTH: Final = 1_000
ADDRESS_LENGTH: Final = 253
LAST_PORT: Final = 65_535
STREAMS: Final = frozenset({"stdout", "stderr"})
LATEST_TIME: Final = 253_402_300_799.0
"""The last second of the year 9999, beyond which no timestamp goes."""
INT32: Final = 2**31
INT64: Final = 2**63
AMOUNT_LIMIT: Final = 2**53


class UntranslatableError(ValueError):
    """A field has a value that no honest agent sends; the text names it."""


def frame(node_id: UUID, session: str, report: Report) -> reports.Frame:
    """Translate a report of a session.

    Raises:
        UntranslatableError: a field has a value that no row could hold.
    """
    return reports.Frame(
        node_id=node_id,
        session_id=session,
        seq=report.seq,
        observations=[observation(one) for one in report.attempts],
        logs=[log(one) for one in report.logs],
        metrics=[metric(one) for one in report.metrics],
        usage=[usage(one) for one in report.usage],
        devices=[device(one) for one in report.devices],
    )


def joined(said: Sequence[reports.Frame]) -> reports.Frame:
    """Return consecutive frames of one session as one, which has the number of the last."""
    first, *others = said
    if not others:
        return first
    return reports.Frame(
        node_id=first.node_id,
        session_id=first.session_id,
        seq=said[-1].seq,
        observations=[one for frame in said for one in frame.observations],
        logs=[one for frame in said for one in frame.logs],
        metrics=[one for frame in said for one in frame.metrics],
        usage=[one for frame in said for one in frame.usage],
        devices=[one for frame in said for one in frame.devices],
    )


def observation(report: AttemptReport) -> reports.AttemptObserved:
    """Translate what happened to one attempt.

    Raises:
        UntranslatableError: the id, the state or a number cannot be one.
    """
    try:
        state = reports.Reported(report.state)
    except ValueError:
        raise UntranslatableError(f"attempts.state: {report.state!r}") from None
    return reports.AttemptObserved(
        attempt=attempt_id(report.attempt),
        state=state,
        exit_code=_bounded("exit_code", report.exit_code, -INT32, INT32),
        signal=_bounded("signal", report.signal, 0, 256),
        is_oom=report.is_oom,
        reason=_text(report.reason, REASON_LENGTH),
        message=_text(report.message, MESSAGE_LENGTH),
        address=_text(report.address, ADDRESS_LENGTH),
        ports={
            _text(label, REASON_LENGTH): port
            for label, port in report.ports.items()
            if 0 < port <= LAST_PORT
        },
    )


def log(chunk: LogChunk) -> reports.LogReceived:
    """Translate a piece of output.

    Raises:
        UntranslatableError: the stream, the offset or the encoding cannot be one.
    """
    if chunk.stream not in STREAMS:
        raise UntranslatableError(f"logs.stream: {chunk.stream!r}")
    if not 0 <= chunk.offset < INT64:
        raise UntranslatableError(f"logs.offset: {chunk.offset}")
    try:
        data = base64.b64decode(chunk.data, validate=True)
    except ValueError as error:
        raise UntranslatableError(f"logs.data is not base64: {error}") from error
    return reports.LogReceived(attempt_id(chunk.attempt), chunk.stream, chunk.offset, data)


def metric(point: MetricPoint) -> reports.MetricReceived:
    """Translate a line of metrics.

    Raises:
        UntranslatableError: the id, the line or the time cannot be one.
    """
    if not 0 <= point.line < INT32:
        raise UntranslatableError(f"metrics.line: {point.line}")
    return reports.MetricReceived(
        attempt=attempt_id(point.attempt),
        line=point.line,
        at=_time(point.at),
        values={_text(name, REASON_LENGTH): value for name, value in point.values.items()},
    )


def usage(sample: UsageSample) -> reports.UsageReceived:
    """Translate a measurement.

    Raises:
        UntranslatableError: the subject, the time or a number cannot be one.
    """
    is_special = sample.subject == reports.NODE_SUBJECT or sample.subject.startswith(
        reports.GPU_SUBJECT
    )
    subject = _text(sample.subject, 104) if is_special else str(attempt_id(sample.subject))
    return reports.UsageReceived(
        subject=subject,
        at=_time(sample.at),
        cpu_milli=_bounded("usage.cpu_milli", sample.cpu_milli, 0, INT32),
        memory_bytes=_bounded("usage.memory_bytes", sample.memory_bytes, 0, INT64),
        gpu_percent=sample.gpu_percent,
        gpu_memory_bytes=_bounded("usage.gpu_memory_bytes", sample.gpu_memory_bytes, 0, INT64),
        temperature_celsius=sample.temperature_celsius,
        power_watts=sample.power_watts,
    )


def device(info: DeviceInfo) -> reports.DeviceObserved:
    """Translate a device's health."""
    return reports.DeviceObserved(
        uuid=_text(info.uuid, 100),
        is_healthy=info.is_healthy,
        health_reason=_text(info.health_reason, 300),
    )


def attempt_id(text: str) -> UUID:
    """Return the id.

    Raises:
        UntranslatableError: it is none.
    """
    try:
        return UUID(text)
    except ValueError:
        raise UntranslatableError(f"attempt: {text[:80]!r} is no id") from None


def _bounded(name: str, value: int | None, least: int, limit: int) -> int | None:
    if value is not None and not least <= value < limit:
        raise UntranslatableError(f"{name}: {value}")
    return value


def _time(seconds: float) -> float:
    if not 0 <= seconds <= LATEST_TIME:
        raise UntranslatableError(f"at: {seconds}")
    return seconds


def _text(text: str, length: int) -> str:
    """Cut a text to what a column holds; PostgreSQL stores no NUL."""
    return text.replace("\0", "")[:length]


def _files(orders: Sequence[launches.FileOrder]) -> list[FileToPlace]:
    return [
        FileToPlace(
            path=file.path,
            content=file.content,
            url=file.url,
            mode=file.mode,
            is_archive=file.is_archive,
        )
        for file in orders
    ]


def launch(command_id: int, order: launches.LaunchOrder) -> Launch:
    """Translate the order to start an attempt."""
    return Launch(
        command_id=command_id,
        epoch=order.epoch,
        attempt=order.attempt,
        job=order.job,
        task=order.task,
        tenant=order.tenant,
        argv=order.argv,
        runtime=order.runtime,
        environment=order.environment,
        files=_files(order.files),
        hosts=order.hosts,
        git_url=order.git_url,
        git_revision=order.git_revision,
        working_dir=order.working_dir,
        cpu_milli=order.cpu_milli,
        memory_bytes=order.memory_bytes,
        cpus=order.cpus,
        devices=order.devices,
        ports=order.ports,
        grace_seconds=order.grace_seconds,
        time_limit_seconds=order.time_limit_seconds,
        simulate_seconds=order.simulate_seconds,
        secret_environment=order.secret_environment,
        secret_files=_files(order.secret_files),
    )


def stop(command_id: int, order: launches.StopOrder) -> Stop:
    """Translate the order to end an attempt."""
    return Stop(
        command_id=command_id,
        epoch=order.epoch,
        attempt=order.attempt,
        grace_seconds=order.grace_seconds,
        reason=order.reason,
    )


def facts(hello: Hello, peer: str) -> nodes.NodeFacts:
    """Translate what a node says of itself; `peer` is where its connection comes from.

    Raises:
        UntranslatableError: an id or an amount cannot be one.
    """
    for name, value in (("cpu_milli", hello.cpu_milli), ("memory_bytes", hello.memory_bytes)):
        _bounded(name, value, 0, AMOUNT_LIMIT)
    return nodes.NodeFacts(
        boot_id=_text(hello.boot_id, 64),
        agent_version=_text(hello.agent_version, 40),
        cpu_milli=hello.cpu_milli,
        memory_bytes=hello.memory_bytes,
        sockets=max(1, min(hello.sockets, 1_024)),
        numa_nodes=hello.numa_nodes[:1_024],
        devices=[_device_facts(info) for info in hello.devices],
        runtimes=runtimes(hello.runtimes),
        attempts={attempt_id(one.attempt): one.state for one in hello.attempts},
        address=_text(hello.address or peer, ADDRESS_LENGTH),
        is_simulated=hello.is_simulated,
        warnings=[_text(one, MESSAGE_LENGTH) for one in hello.warnings[:100]],
    )


def runtimes(reported: Sequence[RuntimeInfo]) -> list[dict[str, Any]]:
    """Translate what a node can run something with.

    Raises:
        UntranslatableError: an image has a size that no file has.
    """
    return [
        {
            "name": _text(one.name, 100),
            "kind": one.kind,
            "version": _text(one.version, 100),
            "images": _images(one.images),
        }
        for one in reported[:1_000]
    ]


def _images(held: dict[str, int]) -> dict[str, int]:
    for size in held.values():
        _bounded("runtimes.images", size, 0, AMOUNT_LIMIT)
    return {_text(name, 300): size for name, size in itertools.islice(held.items(), MOST_IMAGES)}


MOST_IMAGES = 1_000


def _device_facts(info: DeviceInfo) -> nodes.DeviceFacts:
    _bounded("devices.memory_bytes", info.memory_bytes, 0, AMOUNT_LIMIT)
    _bounded("devices.index", info.index, 0, 32_768)
    _bounded("devices.numa_node", info.numa_node, -1, 32_768)
    return nodes.DeviceFacts(
        uuid=_text(info.uuid, 100),
        index=info.index,
        model=_text(info.model, 100),
        memory_bytes=info.memory_bytes,
        is_healthy=info.is_healthy,
        health_reason=_text(info.health_reason, 300),
        numa_node=info.numa_node,
        links={_text(peer, 100): _text(kind, 20) for peer, kind in info.links.items()},
    )
