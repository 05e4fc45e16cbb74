"""Who this node is to the control plane: exchange a one-use token for a credential, keep it."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, Final
from urllib.parse import quote, unquote, urlsplit

from worker.shim import records

FILE = "node.json"
REPLY_LIMIT_BYTES: Final = 65_536
TIMEOUT_SECONDS: Final = 20.0
FLEET_REQUEST: Final = 100
"""Nodes that join by one request."""


class JoinError(Exception):
    """The node could not join; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The node's name at the control plane and the secret that proves it."""

    server: str
    node: str
    credential: str

    def __repr__(self) -> str:
        """Leave the credential out: this may end up in a log."""
        return f"Identity(server={self.server!r}, node={self.node!r})"


def check_server(url: str) -> str:
    """Return the gateway's origin without a trailing slash.

    Raises:
        JoinError: it is not http(s)://host[:port].
    """
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query:
        raise JoinError(f"server {url!r} is not of the form https://gateway.example:8443")
    return url.rstrip("/")


def join(*, server: str, token: str, name: str, data: Path, ca_file: str = "") -> Identity:
    """Exchange the token and store the credential, readable by the agent's user alone.

    Raises:
        JoinError: the folder already belongs to a node, the token was refused, or the server
            could not be reached.
    """
    path = data / FILE
    if path.exists():
        raise JoinError(f"{data} already belongs to a node; remove {path} to join anew")
    server = check_server(server)
    reply = _ask(server, {"token": token, "name": name}, ca_file)
    identity = _identity(server, reply)
    data.mkdir(mode=0o711, parents=True, exist_ok=True)
    _store(data, identity)
    return identity


def join_fleet(
    *, server: str, token: str, folders: dict[str, Path], ca_file: str = ""
) -> list[Identity]:
    """Join nodes to be simulated, name -> folder, in few requests; each is all or nothing.

    Nothing is forced to the disk: after a power cut a simulated node joins under another name.

    Raises:
        JoinError: the token was refused, or the server could not be reached.
    """
    server = check_server(server)
    joined: list[Identity] = []
    every = list(folders)
    for begin in range(0, len(every), FLEET_REQUEST):
        names = every[begin : begin + FLEET_REQUEST]
        reply = _ask(server, {"token": token, "names": names}, ca_file)
        replies = reply.get("nodes")
        if not isinstance(replies, list) or len(replies) != len(names):
            raise JoinError(f"{server} answered without the nodes; is it a Terrace gateway?")
        for name, one in zip(names, replies, strict=True):
            identity = _identity(server, one if isinstance(one, dict) else {})
            folders[name].mkdir(mode=0o711, parents=True, exist_ok=True)
            _store(folders[name], identity, is_durable=False)
            joined.append(identity)
    return joined


def _ask(server: str, document: dict[str, Any], ca_file: str) -> dict[str, Any]:
    request = urllib.request.Request(  # noqa: S310 -- the scheme is checked by check_server
        f"{server}/agent/join",
        data=json.dumps(document).encode(),
        headers={"Content-Type": "application/json"},
    )
    return _read_reply(request, ca_file)


def _identity(server: str, reply: dict[str, Any]) -> Identity:
    if not isinstance(reply.get("node"), str) or not isinstance(reply.get("credential"), str):
        raise JoinError(f"{server} answered without node and credential; is it a Terrace gateway?")
    return Identity(server=server, node=reply["node"], credential=reply["credential"])


def _store(data: Path, identity: Identity, *, is_durable: bool = True) -> None:
    """Keep the identity in a file that only the agent's user can read."""
    records.write(
        str(data / FILE),
        {"server": identity.server, "node": identity.node, "credential": identity.credential},
        is_durable=is_durable,
    )


def move(data: Path, server: str) -> None:
    """Note that the gateway is reached at another address now.

    Raises:
        JoinError: the address is none, or the node has not joined.
    """
    known, server = load(data), check_server(server)
    if known.server != server:
        _store(data, Identity(server=server, node=known.node, credential=known.credential))


def load(data: Path) -> Identity:
    """Read the stored identity.

    Raises:
        JoinError: there is none, or it is damaged.
    """
    record = records.read(str(data / FILE))
    if record is None or not {"server", "node", "credential"} <= record.keys():
        raise JoinError(
            f"{data / FILE} is missing or damaged; join first: "
            f"terrace-agent join --server URL --token TOKEN --data {data}"
        )
    return Identity(
        server=str(record["server"]), node=str(record["node"]), credential=str(record["credential"])
    )


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the credential to another host."""

    def redirect_request(self, *_args: Any, **_kwargs: Any) -> None:
        return None


def tls_context(ca_file: str = "") -> ssl.SSLContext:
    """Return whom to trust: `ca_file`, or the system's. Read again only when the file changes.

    Reading the system's takes 30 ms of CPU time, which hundreds of nodes would each pay.
    """
    source = ca_file or ssl.get_default_verify_paths().cafile or ""
    try:
        changed = Path(source).stat().st_mtime_ns if source else 0
    except OSError:
        changed = 0  # what is wrong with the file is said where it is read
    return _read_trust(ca_file, changed)


@lru_cache(maxsize=4)
def _read_trust(ca_file: str, _changed: int) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=ca_file or None)


def open_url(request: urllib.request.Request, ca_file: str = "") -> IO[bytes]:
    """Open an HTTP(S) request without following redirects.

    Raises:
        OSError: no connection, or a status that is not 2xx (urllib.error.HTTPError).
    """
    handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
    if request.type == "https":
        handlers.append(urllib.request.HTTPSHandler(context=tls_context(ca_file)))
    opener = urllib.request.build_opener(*handlers)
    reply: IO[bytes] = opener.open(request, timeout=TIMEOUT_SECONDS)
    return reply


def fetch_request(identity: Identity, url: str) -> urllib.request.Request:
    """Return the request for a file of the gateway, with the node's credential.

    Only the path of `url` counts: the credential goes to the gateway that the node joined by, and
    nowhere else, also where the control plane knows it by another name.
    """
    headers = {"Authorization": f"Bearer {identity.credential}"}
    whole = identity.server + quote(unquote(urlsplit(url).path))
    return urllib.request.Request(whole, headers=headers)  # noqa: S310 -- the gateway's scheme


def _read_reply(request: urllib.request.Request, ca_file: str) -> dict[str, Any]:
    try:
        with open_url(request, ca_file) as reply:
            text = reply.read(REPLY_LIMIT_BYTES)
    except urllib.error.HTTPError as error:
        detail = error.read(2_000).decode("utf-8", "replace")
        raise JoinError(
            f"{request.full_url} refused the token ({error.code}): {detail}. "
            "A token works once and for a few minutes; make a new one on the cluster page."
        ) from error
    except OSError as error:
        raise JoinError(f"{request.full_url} cannot be reached: {error}") from error
    try:
        document = json.loads(text)
    except ValueError as error:
        raise JoinError(f"{request.full_url} did not answer with JSON") from error
    return document if isinstance(document, dict) else {}
