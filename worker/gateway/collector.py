"""Commit reports in batches: at most 100 or what came within 50 ms, in one transaction.

Mere measurements wait up to half a second for others; anything else takes them along.

A report is acknowledged after its commit and never before. What cannot be committed is not kept:
the session ends, and the agent repeats it all in its next one.
"""

from __future__ import annotations

import asyncio
from typing import Final

import structlog
from django.db import Error as DatabaseError
from django.db import OperationalError

from worker.gateway import border, metrics, translation
from worker.gateway.database import in_thread
from worker.gateway.session import (
    CLOSE_INTERNAL,
    AgentSession,
    Arrived,
    EndSession,
)
from worker.protocol import LAPSED, REMOVED, SUPERSEDED, CommandDone, Heartbeat, Launch, Stop

log = structlog.get_logger(__name__)

BATCH_REPORTS: Final = 100
BATCH_SECONDS: Final = 0.05
QUIET_SECONDS: Final = 0.005
"""When nothing comes for so long a batch is closed: alone, a report waits no longer than this."""
USAGE_SECONDS: Final = 0.5
"""So long a batch of mere measurements waits for more: hundreds of nodes send one each 5 s."""


STALE_MESSAGES: Final = {
    SUPERSEDED: "a newer session of this node was opened; if the machine was cloned, join the copy "
    "as a node of its own",
    LAPSED: "the node was silent for longer than its lease and was given up; open a new session",
    REMOVED: "the node was removed from its cluster; join again with a new token",
}


class Collector:
    """Takes from all sessions what changes the database, and writes it together."""

    def __init__(self) -> None:
        self._reports: asyncio.Queue[Arrived] = asyncio.Queue()
        self._beats: dict[AgentSession, Heartbeat] = {}
        self._done: list[int] = []
        self._has_more = asyncio.Event()

    async def report(self, arrived: Arrived) -> None:
        """Commit a report soon."""
        self._reports.put_nowait(arrived)

    async def heartbeat(self, session: AgentSession, beat: Heartbeat) -> None:
        """Renew a lease soon; of several beats of one session the last one counts."""
        self._beats[session] = beat
        self._has_more.set()

    async def done(
        self, session: AgentSession, command: Launch | Stop, answer: CommandDone
    ) -> None:
        """Delete a confirmed command soon; first say what became of one that was refused."""
        if answer.refused and isinstance(command, Launch):
            await in_thread(border.refused, session.node_id, command.attempt, answer.refused)
        self._done.append(command.command_id)
        self._has_more.set()

    async def run_reports(self) -> None:
        """Write reports for ever; while a batch is being written, the next one gathers.

        One batch at a time: tasks of a gang report from many nodes, so that two would wait for one
        another's jobs.
        """
        while True:
            sessions: dict[AgentSession, list[Arrived]] = {}
            for arrived in await self._next_batch():
                sessions.setdefault(arrived.session, []).append(arrived)
            await self._commit(list(sessions.values()))

    async def run_beats(self) -> None:
        """Renew leases and delete confirmed commands for ever, all that came in one go."""
        while True:
            await self._has_more.wait()
            await asyncio.sleep(BATCH_SECONDS)
            self._has_more.clear()
            beats, self._beats = self._beats, {}
            done, self._done = self._done, []
            try:
                await self._renew(beats)
                if done:
                    await in_thread(border.done, done)
            except DatabaseError as error:
                # Not answered, an agent is silent; not deleted, a command is sent again.
                log.warning("gateway.database_away", error=str(error))

    async def _next_batch(self) -> list[Arrived]:
        batch = [await self._reports.get()]
        loop = asyncio.get_running_loop()
        begun_at = loop.time()
        is_urgent = batch[0].is_urgent
        while len(batch) < BATCH_REPORTS:
            left = begun_at + (BATCH_SECONDS if is_urgent else USAGE_SECONDS) - loop.time()
            if left <= 0:
                break
            try:
                async with asyncio.timeout(min(left, QUIET_SECONDS) if is_urgent else left):
                    batch.append(await self._reports.get())
            except TimeoutError:
                break
            is_urgent = is_urgent or batch[-1].is_urgent
        return batch

    async def _commit(self, groups: list[list[Arrived]]) -> None:
        """Write one batch; if that fails, each session by itself: one must not stop the others."""
        frames = [translation.joined([item.frame for item in group]) for group in groups]
        try:
            committed = await in_thread(border.record, frames)
        except Exception as error:  # top of a loop: says it, and ends the session at fault
            if len(groups) > 1 and not isinstance(error, OperationalError):
                log.warning("gateway.batch_split", error=str(error), sessions=len(groups))
                for group in groups:
                    await self._commit([group])
                return
            log.exception(
                "gateway.reports_not_committed", nodes=[str(one.node_id) for one in frames]
            )
            for group in groups:
                group[0].session.end(
                    EndSession("not_committed", "a report could not be committed", CLOSE_INTERNAL)
                )
            return
        await asyncio.gather(*map(self._acknowledge, groups, committed))

    async def _acknowledge(self, group: list[Arrived], seq: int | None) -> None:
        session = group[0].session
        if seq is None:
            session.end(await self._stale(session))
            return
        now = asyncio.get_running_loop().time()
        for item in group:
            metrics.COMMIT_SECONDS.observe(now - item.at)
        metrics.REPORTS.inc(len(group))
        await session.committed(seq, len(group))

    async def _renew(self, beats: dict[AgentSession, Heartbeat]) -> None:
        if not beats:
            return
        held = [(session.node_id, session.session) for session in beats]
        current = await in_thread(border.renew, held)
        for session, beat in beats.items():
            if (session.node_id, session.session) in current:
                await session.renewed(beat)
            else:
                session.end(await self._stale(session))

    async def _stale(self, session: AgentSession) -> EndSession:
        return stale(await in_thread(border.why_stale, session.node_id, session.session))


def stale(code: str) -> EndSession:
    """Return the end of a session that is not its node's current one."""
    return EndSession(code, STALE_MESSAGES[code])
