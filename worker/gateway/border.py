"""Every call of the gateway into the domain: synchronous, with the time by the database."""

from __future__ import annotations

import os
import socket
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import IO, Final
from uuid import UUID

import structlog
from django.core.files.base import File
from django.db import DatabaseError

from scheduling.domain import clock, files, launches, nodes, reports
from scheduling.models import Node
from scheduling.models.node import NodeState
from tenants.domain import outbox
from tenants.domain.errors import NotFound
from tenants.models import OutboxRow
from worker.gateway import translation
from worker.gateway.translation import UntranslatableError
from worker.protocol import LAPSED, REMOVED, SUPERSEDED, Hello, Launch, Stop

log = structlog.get_logger(__name__)

COPY: Final = f"{socket.gethostname()}:{os.getpid()}"
"""How this copy of the gateway is named in the rows of the sessions it holds."""


class HelloRefusedError(Exception):
    """A session cannot be opened with what the node says of itself."""


@dataclass(frozen=True, slots=True)
class Joined:
    """A new node and the secret that proves it, which is stored nowhere but on the node."""

    node: str
    credential: str


@dataclass(frozen=True, slots=True)
class OpenedFile:
    """A file's bytes and how many they are."""

    stream: IO[bytes]
    size: int


def ping() -> None:
    """See that the database answers."""
    clock.database_now()


def join(token: str, names: Sequence[str]) -> list[Joined]:
    """Exchange a token for nodes of these names, all or none.

    Raises:
        Denied: the token is unknown, expired, or not good for so many nodes.
        Conflict: another node has one of the names.
    """
    joined = nodes.join_many(token=token, names=names, now=clock.database_now())
    return [Joined(node=str(node.id), credential=credential) for node, credential in joined]


def authenticate(credential: str) -> UUID | None:
    """Return the node that a credential belongs to."""
    node = nodes.authenticate(credential)
    return node.id if node is not None else None


def open_session(node_id: UUID, hello: Hello, peer: str) -> nodes.Session:
    """Begin a session; older ones of the node are over.

    Raises:
        HelloRefusedError: the node is not ours any more, or a field cannot be stored.
    """
    if hello.node != str(node_id):
        raise HelloRefusedError(f"the credential is that of node {node_id}, not {hello.node!r}")
    try:
        facts = translation.facts(hello, peer)
    except UntranslatableError as error:
        raise HelloRefusedError(str(error)) from error
    try:
        return nodes.open_session(
            node_id=node_id, facts=facts, gateway=COPY, now=clock.database_now()
        )
    except NotFound as error:
        raise HelloRefusedError(f"node {node_id} was removed") from error


def renew(sessions: Collection[tuple[UUID, str]]) -> set[tuple[UUID, str]]:
    """Note that these nodes live; return those sessions that are still their node's current one."""
    return nodes.heartbeats(sessions=sessions, now=clock.database_now())


def why_stale(node_id: UUID, session: str) -> str:
    """Return why a session is not its node's current one: a code of the protocol's Refused."""
    node = Node.objects.filter(id=node_id).first()
    if node is None or node.state == NodeState.REMOVED:
        return REMOVED
    if node.session_id in {"", session}:
        return LAPSED
    return SUPERSEDED


def record(frames: Sequence[reports.Frame]) -> list[int | None]:
    """Write one frame of each of several sessions in one transaction.

    Returns the highest committed `seq` of each; None: the session is not its node's current one.
    """
    return reports.record_many(frames=frames, now=clock.database_now())


def refused(node_id: UUID, attempt: str, code: str) -> None:
    """Note that a node will never carry out a launch."""
    reports.refused(node_id=node_id, attempt_id=UUID(attempt), code=code, now=clock.database_now())


def claim(node_ids: Collection[UUID], limit: int) -> tuple[dict[UUID, list[Launch | Stop]], int]:
    """Take commands that are due; return them by node, in order, and how many rows that took."""
    rows = outbox.claim_node_commands(node_ids, limit, clock.database_now())
    listed = [row for rows_of_node in rows.values() for row in rows_of_node]
    orders = _compose(listed)
    if orders.void:
        outbox.done(orders.void)
    for one in orders.withheld:
        reports.not_launched(
            node_id=one.node,
            attempt_id=one.attempt,
            message=one.message,
            now=clock.database_now(),
        )
        outbox.done([one.row])
    commands: dict[UUID, list[Launch | Stop]] = {}
    for node_id, rows_of_node in rows.items():
        for row in rows_of_node:
            if row.id in orders.launches:
                command: Launch | Stop = translation.launch(row.id, orders.launches[row.id])
            elif row.id in orders.stops:
                command = translation.stop(row.id, orders.stops[row.id])
            else:
                continue
            commands.setdefault(node_id, []).append(command)
    return commands, len(listed)


def _compose(rows: Sequence[OutboxRow]) -> launches.Orders:
    """Put commands together; one that cannot be is put back by itself, for later or for good."""
    try:
        return launches.compose(rows)
    except DatabaseError:
        raise
    except Exception as error:  # a poison job must not keep the others from starting
        if len(rows) == 1:
            log.exception("gateway.command_not_composed", key=rows[0].key)
            outbox.failed(rows[0], f"{type(error).__name__}: {error}", clock.database_now())
            return launches.Orders({}, {}, [])
    parts = [_compose([row]) for row in rows]
    return launches.Orders(
        launches={key: order for part in parts for key, order in part.launches.items()},
        stops={key: order for part in parts for key, order in part.stops.items()},
        void=[key for part in parts for key in part.void],
        withheld=[one for part in parts for one in part.withheld],
    )


def done(command_ids: Collection[int]) -> None:
    """Take confirmed commands out of the outbox."""
    outbox.done(command_ids)


def open_file(node_id: UUID, file_id: str) -> OpenedFile | None:
    """Open a code file of a job that has a live attempt on the node; None: there is none such.

    Raises:
        Gone: there is, but the store has lost it.
    """
    try:
        wanted = UUID(file_id)
    except ValueError:
        return None
    try:
        file = files.code_for_node(node_id=node_id, file_id=wanted)
    except NotFound:
        return None
    return OpenedFile(files.open_bytes(file), file.size_bytes)


def store_output(node_id: UUID, attempt: str, path: str, content: IO[bytes]) -> None:
    """Keep a file that a task left.

    Raises:
        NotFound: the attempt is not one of the node's.
        Invalid: the path or the size.
    """
    try:
        attempt_id = UUID(attempt)
    except ValueError:
        raise NotFound("attempt") from None
    files.store_output(
        node_id=node_id,
        attempt_id=attempt_id,
        path=path,
        content=File(content),
        now=clock.database_now(),
    )
