"""A service that webhooks post to: answers as the test says, and keeps what came."""

from __future__ import annotations

import hashlib
import hmac
import http.server
import threading
from typing import Self

TAKEN = 204


class Receiver:
    """Listens on a port of this machine; `refusals` are its first answers, `status` the others."""

    def __init__(self, *refusals: int) -> None:
        self.taken: list[tuple[dict[str, str], bytes]] = []
        self.status = TAKEN
        self._refusals = list(refusals)
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self) -> int:
        return self._refusals.pop(0) if self._refusals else self.status

    def _handler(receiver) -> type[http.server.BaseHTTPRequestHandler]:  # noqa: N805 -- `self` is the request's
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.taken.append((dict(self.headers), body))
                self.send_response(receiver._answer())
                self.send_header("Location", "http://127.0.0.1:1/elsewhere")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        return Handler


def is_signed(headers: dict[str, str], body: bytes, secret: str) -> bool:
    """Check a delivery as docs/events.md tells receivers to."""
    signed = f"{headers['Terrace-Timestamp']}.".encode() + body
    digest = hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
    return hmac.compare_digest(headers["Terrace-Signature"], f"sha256={digest}")
