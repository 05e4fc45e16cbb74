"""Open pages for `benchmarks/live.py`, in a process of their own: `python -m benchmarks._pages`.

As cheap a client as can be, so that it is not what is measured: raw sockets, frames cut by their
length, nothing parsed but the time that a chunk carries. Says `open` when all pages follow the
feed; at the end of standard input prints JSON: the delays of each page in milliseconds, and the CPU
time that it used meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import secrets
import sys
import time
from typing import Final, cast

import uvloop

HEAD_END: Final = b"\r\n\r\n"
BYTES: Final = b'"bytes":"'
LONG, LONGER = 126, 127
TEXT_FINAL: Final = 0x81
OPENING_AT_ONCE: Final = 50


class PageProtocol(asyncio.Protocol):
    """One page: notes how long each chunk took from its commit."""

    def __init__(self, request: bytes, key: str) -> None:
        self._request = request
        self._key = key
        self._buffer = b""
        self._transport: asyncio.Transport | None = None
        self.delays: list[float] = []
        self.is_open = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Shake hands."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Cut off the frames that are complete."""
        arrived = time.time()
        buffer = self._buffer + data if self._buffer else data
        if not self.is_open.done():
            head, end, buffer = buffer.partition(HEAD_END)
            if not end:
                self._buffer = head
                return
            self._shake(head)
        while (size := frame_size(buffer)) and len(buffer) >= size:
            self._hear(buffer[:size], arrived)
            buffer = buffer[size:]
        self._buffer = buffer

    def _shake(self, head: bytes) -> None:
        assert self._transport is not None  # noqa: S101 -- there was a connection
        if b" 101 " not in head:
            raise SystemExit(head.decode(errors="replace"))
        wanted = {"do": "subscribe", "regions": [{"key": self._key, "has": "0"}]}
        self._transport.write(masked(json.dumps(wanted).encode()))
        self.is_open.set_result(None)

    def _hear(self, frame: bytes, arrived: float) -> None:
        if frame[0] != TEXT_FINAL:
            return  # a ping of the server's, which does not insist on an answer for so short a time
        for part in frame.split(BYTES)[1:]:
            text = base64.b64decode(part[: part.index(b'"')])
            for line in text.splitlines():
                self.delays.append((arrived - float(line[:17])) * 1000)


def frame_size(buffer: bytes) -> int:
    """Return how long the first frame is with its head; 0: too little has come to tell."""
    if len(buffer) < 10:
        return 0
    size = buffer[1]
    if size == LONG:
        return 4 + int.from_bytes(buffer[2:4])
    return 10 + int.from_bytes(buffer[2:10]) if size == LONGER else 2 + size


def masked(text: bytes) -> bytes:
    """Return a client's text frame; a mask of zeros changes nothing."""
    head = bytes([TEXT_FINAL, 0x80 | LONG]) + len(text).to_bytes(2)
    return head + bytes(4) + text


async def run(port: int, cookie: str, key: str, count: int) -> None:
    """Open the pages, follow until standard input ends, and say what was seen."""
    loop = asyncio.get_running_loop()
    request = "\r\n".join(
        [
            "GET /ws/live/ HTTP/1.1",
            f"Host: 127.0.0.1:{port}",
            f"Origin: http://127.0.0.1:{port}",
            f"Cookie: {cookie}",
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Key: {base64.b64encode(secrets.token_bytes(16)).decode()}",
            "\r\n",
        ]
    ).encode()
    pages: list[PageProtocol] = []
    turn = asyncio.Semaphore(OPENING_AT_ONCE)

    async def open_one() -> None:
        async with turn:
            _, page = await loop.create_connection(
                lambda: PageProtocol(request, key), "127.0.0.1", port
            )
            pages.append(page)
            await page.is_open

    await asyncio.gather(*(open_one() for _ in range(count)))
    print("open", flush=True)
    before = time.process_time()
    await loop.run_in_executor(None, sys.stdin.read)
    used = time.process_time() - before
    print(json.dumps({"cpu_seconds": used, "delays": [page.delays for page in pages]}))


def main() -> None:
    """Follow with the given number of pages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--key", required=True)
    parser.add_argument("--pages", type=int, required=True)
    parser.add_argument("--cpu", type=int, default=-1)
    given = parser.parse_args()
    if given.cpu >= 0:
        os.sched_setaffinity(0, {given.cpu})
    uvloop.run(run(given.port, os.environ["PAGES_COOKIE"], given.key, given.pages))


if __name__ == "__main__":
    main()
