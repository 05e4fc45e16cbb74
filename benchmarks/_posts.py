"""Clients for `submissions.py`, in a process of their own: `python -m benchmarks._posts`.

As cheap as can be, so that they are not what is measured: connections that stay open, replies cut
by their length, nothing parsed but the status. Each line of standard input is an order in JSON:
`kind` (single, batch), `name`, `requests`, `clients`, `jobs` of a batch, and `rate`, the requests a
second (0: as fast as the replies come). Its answer is a line: the time of each request in
milliseconds, and the seconds from the first to the last.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from typing import Any, Final

import uvloop

CREATED: Final = (201, 200)
HEAD_END: Final = b"\r\n\r\n"
LENGTH: Final = b"content-length:"


class Client:
    """One connection that is kept open."""

    def __init__(self, port: int, token: str) -> None:
        self._port = port
        self._head = f"Host: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n".encode()

    async def connect(self) -> None:
        """Open the connection."""
        self._reader, self._writer = await asyncio.open_connection(
            "127.0.0.1", self._port, limit=2**24
        )

    async def post(self, path: str, body: bytes) -> bytes:
        """Send one request; return the body of its reply.

        Raises:
            SystemExit: it was refused.
        """
        self._writer.write(
            b"POST %b HTTP/1.1\r\n%bContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
            % (path.encode(), self._head, len(body), body)
        )
        head = await self._reader.readuntil(HEAD_END)
        length = int(head.lower().partition(LENGTH)[2].partition(b"\r\n")[0])
        reply = await self._reader.readexactly(length)
        if int(head[9:12]) not in CREATED:
            raise SystemExit(f"{head[:12]!r}: {reply[:300]!r}")
        return reply


def job(name: str) -> dict[str, object]:
    """Return the document of a job of one task."""
    role = {"name": "main", "command": ["true"], "cpu": "100m", "memory": "64Mi"}
    return {"name": name, "queue": "default", "roles": [role]}


def bodies(order: dict[str, Any]) -> list[bytes]:
    """Return what is sent, made beforehand."""
    name, jobs = order["name"], order.get("jobs", 1)
    if order["kind"] == "single":
        return [json.dumps(job(f"{name}-{n}")).encode() for n in range(order["requests"])]
    return [
        json.dumps({"jobs": [job(f"{name}-{n}-{m}") for m in range(jobs)]}).encode()
        for n in range(order["requests"])
    ]


async def carry_out(order: dict[str, Any], clients: list[Client]) -> dict[str, object]:
    """Send all requests; return how long each took."""
    path = "/api/v1/jobs" if order["kind"] == "single" else "/api/v1/jobs:batch"
    waiting = list(enumerate(bodies(order)))[::-1]
    rate = order.get("rate", 0)
    took: list[float] = []
    begun = time.perf_counter()

    async def work(client: Client) -> None:
        while waiting:
            number, body = waiting.pop()
            if rate:
                due = begun + number / rate
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
            else:
                due = time.perf_counter()
            reply = await client.post(path, body)
            took.append((time.perf_counter() - due) * 1000)
            if order["kind"] == "batch" and json.loads(reply)["done"] != order["jobs"]:
                raise SystemExit(f"not every job was taken: {reply[:300]!r}")

    await asyncio.gather(*(work(client) for client in clients[: order["clients"]]))
    return {"took_ms": took, "seconds": time.perf_counter() - begun}


async def main() -> None:
    """Connect, and carry out one order after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ports", required=True, help="of web processes, with commas between")
    parser.add_argument("--clients", type=int, required=True)
    given = parser.parse_args()
    ports = [int(port) for port in given.ports.split(",")]
    token = os.environ["POSTS_TOKEN"]
    clients = [Client(ports[n % len(ports)], token) for n in range(given.clients)]
    for client in clients:
        await client.connect()
    while line := await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(await carry_out(json.loads(line), clients)), flush=True)


if __name__ == "__main__":
    uvloop.run(main())
