"""The sessions that this copy of the gateway holds, by node."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING
from uuid import UUID

from worker.gateway import metrics

if TYPE_CHECKING:
    from worker.gateway.session import AgentSession


class Hub:
    """At most one session a node; a newer one takes the older one's place."""

    def __init__(self) -> None:
        self._sessions: dict[UUID, AgentSession] = {}

    def attach(self, session: AgentSession) -> AgentSession | None:
        """Hold the session; return the older one of its node, which has to be ended."""
        older = self._sessions.get(session.node_id)
        self._sessions[session.node_id] = session
        metrics.SESSIONS.set(len(self._sessions))
        return older

    def detach(self, session: AgentSession) -> None:
        """Let go of the session, unless a newer one has its place."""
        if self._sessions.get(session.node_id) is session:
            del self._sessions[session.node_id]
        metrics.SESSIONS.set(len(self._sessions))

    def get(self, node_id: UUID) -> AgentSession | None:
        """Return the node's session if this copy holds it."""
        return self._sessions.get(node_id)

    def held_among(self, payloads: Collection[str]) -> list[UUID]:
        """Return the nodes of these notifications whose session is here."""
        wanted = set(payloads)
        return [node_id for node_id in self._sessions if str(node_id) in wanted]

    def node_ids(self) -> list[UUID]:
        """Return all nodes with a session here."""
        return list(self._sessions)
