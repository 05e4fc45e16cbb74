"""Post events to another service: signed, to the address that was looked at, without redirects."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import time
from typing import Final

from django.conf import settings

from tenants.domain import web_addresses, webhooks
from tenants.domain.web_addresses import Target
from tenants.models import OutboxRow, Webhook

TIMEOUT_SECONDS: Final = 10.0
"""For connecting and for each read; the outbox waits for 60 s."""
READ_BYTES: Final = 4_096


class NotTakenError(Exception):
    """The receiver did not take a delivery; the text says why."""


class _Plain(http.client.HTTPConnection):
    """Connects to the addresses that were looked at, not to what the name stands for by now."""

    def __init__(self, target: Target) -> None:
        super().__init__(target.host, target.port, timeout=TIMEOUT_SECONDS)
        self._target = target

    def connect(self) -> None:
        """Try one address after the other."""
        self.sock = _connect(self._target)


class _Tls(_Plain):
    """The same by TLS, with the certificate of the name."""

    def connect(self) -> None:
        """Try one address after the other, then shake hands."""
        context = ssl.create_default_context()
        self.sock = context.wrap_socket(_connect(self._target), server_hostname=self._target.host)


def post(webhook: Webhook, row: OutboxRow, now: float | None = None) -> None:
    """Post a batch of events.

    Raises:
        NotTakenError: the address may not be talked to, nobody answered, or not with 2xx.
    """
    body = json.dumps({"webhook": str(webhook.id), **row.payload}, separators=(",", ":")).encode()
    timestamp = int(time.time() if now is None else now)
    try:
        target = web_addresses.resolve(webhook.url, settings.TERRACE_WEBHOOK_ALLOWED)
        status = _send(target, body, headers_of(webhook, row, timestamp, body))
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise NotTakenError(f"{type(error).__name__}: {error}") from error
    if not 200 <= status < 300:  # noqa: PLR2004 -- what HTTP calls success
        raise NotTakenError(f"the receiver answered with status {status}")


def headers_of(webhook: Webhook, row: OutboxRow, timestamp: int, body: bytes) -> dict[str, str]:
    """Return what tells a receiver that it is us, now, and which delivery it is."""
    return {
        "Content-Type": "application/json",
        "User-Agent": "Terrace",
        "Terrace-Delivery": str(row.id),
        "Terrace-Timestamp": str(timestamp),
        "Terrace-Signature": webhooks.signature(webhooks.secret_of(webhook), timestamp, body),
        "Connection": "close",
    }


def _send(target: Target, body: bytes, headers: dict[str, str]) -> int:
    connection = _Tls(target) if target.scheme == "https" else _Plain(target)
    try:
        named = {"Host": target.host_header, **headers}
        connection.request("POST", target.path, body=body, headers=named)
        reply = connection.getresponse()
        reply.read(READ_BYTES)
        return reply.status
    finally:
        connection.close()


def _connect(target: Target) -> socket.socket:
    last: OSError = OSError("the name stands for no address")
    for ip in target.ips:
        try:
            return socket.create_connection((ip, target.port), timeout=TIMEOUT_SECONDS)
        except OSError as error:
            last = error
    raise last
