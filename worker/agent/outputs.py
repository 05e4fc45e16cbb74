"""Bring what a task left in TERRACE_OUTPUT to the control plane, once it is over.

The folder is the task's: it may hold links, pipes, or millions of files. It is walked by open
folders without following anything, only regular files are taken, and there are limits. What was
brought is noted in the attempt's `outputs.json`, so a restarted agent goes on where it was.
"""

from __future__ import annotations

import asyncio
import http.client
import logging
import os
import ssl
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final
from urllib.parse import quote, urlsplit

from worker.agent.attempts import Attempt
from worker.agent.identity import TIMEOUT_SECONDS, Identity

logger = logging.getLogger(__name__)

RECORD: Final = "outputs.json"
FILES_LIMIT: Final = 1_000
DEPTH_LIMIT: Final = 32
FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 60.0
REFUSALS: Final = frozenset({400, 404, 413, 422})
"""Answers that will be the same next time."""
OPEN_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class RefusedError(Exception):
    """The gateway will never take this file."""


class AwayError(Exception):
    """The gateway could not be reached or could not store the file now."""


@dataclass(frozen=True, slots=True)
class Uploader:
    """Brings files of one node to its gateway."""

    identity: Identity
    ca_file: str = ""

    async def bring(self, attempt: Attempt, folder: Path) -> None:
        """Bring all files; tries again until each was taken or refused for good."""
        record = attempt.read(RECORD) or {}
        done = {str(path) for path in record.get("done") or []}
        pause = FIRST_PAUSE_SECONDS
        while not record.get("is_complete"):
            try:
                await asyncio.to_thread(self._bring_all, attempt, folder, done)
            except AwayError as error:
                logger.warning("outputs.postponed attempt=%s error=%s", attempt.id, error)
                await asyncio.sleep(pause)
                pause = min(LONGEST_PAUSE_SECONDS, pause * 2)
                continue
            record = {"done": sorted(done), "is_complete": True}
            attempt.write(RECORD, record)
        attempt.is_collected = True

    def _bring_all(self, attempt: Attempt, folder: Path, done: set[str]) -> None:
        for path, fd, size in regular_files(folder):
            try:
                if path not in done:
                    self._send(attempt.id, path, fd, size)
            except RefusedError as error:
                logger.warning("outputs.refused attempt=%s path=%s %s", attempt.id, path, error)
            finally:
                os.close(fd)
            done.add(path)
            attempt.write(RECORD, {"done": sorted(done), "is_complete": False})

    def _send(self, attempt: str, path: str, fd: int, size: int) -> None:
        parts = urlsplit(self.identity.server)
        target = f"{parts.path}/agent/v1/outputs/{quote(attempt, safe='')}?path={quote(path)}"
        headers = {
            "Authorization": f"Bearer {self.identity.credential}",
            "Content-Type": "application/octet-stream",
            "Content-Length": str(size),
        }
        connection = self._connection()
        try:
            with os.fdopen(os.dup(fd), "rb") as content:
                connection.request("POST", target, body=_Exactly(content, size), headers=headers)
                answer = connection.getresponse()
                detail = answer.read(2_000).decode("utf-8", "replace")
        except (OSError, http.client.HTTPException) as error:
            raise AwayError(str(error) or type(error).__name__) from error
        finally:
            connection.close()
        if answer.status in REFUSALS:
            raise RefusedError(f"{answer.status} {detail}")
        if answer.status != http.HTTPStatus.CREATED:
            raise AwayError(f"{answer.status} {detail}")

    def _connection(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.identity.server)
        host = parts.hostname or ""
        if parts.scheme == "https":
            context = ssl.create_default_context(cafile=self.ca_file or None)
            return http.client.HTTPSConnection(
                host, parts.port, timeout=TIMEOUT_SECONDS, context=context
            )
        return http.client.HTTPConnection(host, parts.port, timeout=TIMEOUT_SECONDS)


class _Exactly:
    """A file's first `size` bytes; it may grow or shrink while it is read, the promise stands."""

    def __init__(self, content: BinaryIO, size: int) -> None:
        self._content = content
        self._left = size

    def read(self, length: int = -1) -> bytes:
        """Return up to `length` bytes."""
        wanted = self._left if length < 0 else min(length, self._left)
        data = self._content.read(wanted)
        self._left -= len(data)
        return data


def regular_files(folder: Path, limit: int = FILES_LIMIT) -> Iterator[tuple[str, int, int]]:
    """Give (relative path, open descriptor, size) of up to `limit` regular files, by path.

    The caller closes each descriptor. Links, pipes, devices and what is too deep are left out.
    """
    try:
        root = os.open(folder, OPEN_FLAGS | os.O_DIRECTORY)
    except OSError:
        return
    count = 0
    try:
        owner = os.fstat(root).st_uid
        for path, fd in _walk(root, "", 0):
            if os.fstat(fd).st_uid != owner:
                os.close(fd)  # a hard link to what is not the task's
                continue
            if count >= limit:
                os.close(fd)
                logger.warning("outputs.too_many folder=%s limit=%s", folder, limit)
                return
            count += 1
            yield path, fd, os.fstat(fd).st_size
    finally:
        os.close(root)


def _walk(folder: int, prefix: str, depth: int) -> Iterator[tuple[str, int]]:
    for name in sorted(os.listdir(folder)):
        try:
            fd = os.open(name, OPEN_FLAGS, dir_fd=folder)
        except OSError:
            continue  # a link, or gone, or a socket
        mode = os.fstat(fd).st_mode
        if stat.S_ISREG(mode):
            yield f"{prefix}{name}", fd
            continue
        try:
            if stat.S_ISDIR(mode) and depth < DEPTH_LIMIT:
                yield from _walk(fd, f"{prefix}{name}/", depth + 1)
        finally:
            os.close(fd)
