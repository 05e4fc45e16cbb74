"""Send the commands that wait in the outbox to those nodes whose session is held here.

Woken by NOTIFY in the transaction that wrote a command; since that may be missed, all nodes are
looked at every two seconds as well. A command is due again until its agent has confirmed it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final
from uuid import UUID

import structlog
from django.db import Error as DatabaseError

from tenants.domain import notify
from worker.gateway import border
from worker.gateway.database import in_thread
from worker.gateway.hub import Hub

log = structlog.get_logger(__name__)

POLL_SECONDS: Final = 2.0
CLAIM_COMMANDS: Final = 500


class Dispatcher:
    """Carries commands from the outbox to the sessions."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._due: set[UUID] = set()
        self._is_due = asyncio.Event()

    def look_at(self, node_ids: Collection[UUID]) -> None:
        """Look for commands of these nodes now."""
        self._due.update(node_ids)
        if self._due:
            self._is_due.set()

    async def listen(self) -> None:
        """Hear for which nodes commands were written, for ever."""
        listener = notify.AsyncListener(notify.NODE)
        try:
            while True:
                payloads = await listener.wait(POLL_SECONDS)
                if payloads:
                    self.look_at(self._hub.held_among(payloads))
                else:
                    self.look_at(self._hub.node_ids())
        finally:
            await listener.close()

    async def run(self) -> None:
        """Claim and send, for ever."""
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            due, self._due = self._due, set()
            try:
                while await self._send(due):
                    continue
            except DatabaseError as error:
                log.warning("gateway.commands_not_claimed", error=str(error))
                await asyncio.sleep(POLL_SECONDS)
                self.look_at(due)

    async def _send(self, node_ids: set[UUID]) -> bool:
        """Send one claim's worth; tell whether there may be more."""
        claimed, taken = await in_thread(border.claim, list(node_ids), CLAIM_COMMANDS)
        sending = []
        for node_id, commands in claimed.items():
            session = self._hub.get(node_id)
            if session is not None:
                sending.append(session.commands(commands))
        await asyncio.gather(*sending)
        return taken >= CLAIM_COMMANDS
