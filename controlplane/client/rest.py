"""A client of the REST API: the token, retries that are safe, errors with their words."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from uuid import uuid4

import httpx

TIMEOUT_SECONDS = 30.0
TRIES = 4
LONGEST_PAUSE_SECONDS = 10.0
RETRIED = frozenset({429, 502, 503, 504})

Json = dict[str, Any]


class RefusedError(Exception):
    """The server refused; the text says what, why and what would do."""

    def __init__(self, status: int, document: Mapping[str, Any]) -> None:
        """Keep the problem document."""
        self.status = status
        self.code = str(document.get("code", ""))
        self.document = document
        lines = [str(document.get("detail") or f"HTTP {status}")]
        errors = document.get("errors") or ()
        if len(errors) > 1 or any(one.get("field", "$") != "$" for one in errors):
            lines += [f"  {one['field']}: {one['message']}" for one in errors]
        if document.get("ask"):
            lines.append(f"  Ask {', '.join(document['ask'])}.")
        super().__init__("\n".join(lines))


class UnreachableError(Exception):
    """The server did not answer, or something else answered in its place."""


class RestClient:
    """Speaks version 1 of the API.

    What fails on the way is tried again with the same Idempotency-Key, so a job is submitted once.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        tries: int = TRIES,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Connect at the first request; `transport` and `sleep` are for tests."""
        self._tries = tries
        self._sleep = sleep
        self._http = httpx.Client(
            base_url=f"{url.rstrip('/')}/api/v1/",
            headers={"Authorization": f"Bearer {token}", "Accept": "application/json"},
            timeout=TIMEOUT_SECONDS,
            transport=transport,
        )

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def get(self, path: str, **query: object) -> Json:
        """Read something."""
        reply: Json = self.send("GET", path, params=_given(query)).json()
        return reply

    def post(self, path: str, body: Mapping[str, Any] | None = None, **query: object) -> Json:
        """Make or do something, once."""
        reply: Json = self.send("POST", path, json=body or {}, params=_given(query)).json()
        return reply

    def post_yaml(self, path: str, text: str, **query: object) -> Json:
        """Make something out of a YAML text, once."""
        headers = {"Content-Type": "application/yaml"}
        content = text.encode()
        reply: Json = self.send(
            "POST", path, content=content, headers=headers, params=_given(query)
        ).json()
        return reply

    def patch(self, path: str, body: Mapping[str, Any], *, if_match: str = "") -> Json:
        """Change something, as it was seen with the entity tag `if_match`."""
        return self._change("PATCH", path, body, if_match)

    def put(self, path: str, body: Mapping[str, Any], *, if_match: str = "") -> Json:
        """State something anew, as it was seen with the entity tag `if_match`."""
        return self._change("PUT", path, body, if_match)

    def _change(self, method: str, path: str, body: Mapping[str, Any], if_match: str) -> Json:
        headers = {"If-Match": if_match} if if_match else {}
        reply: Json = self.send(method, path, json=body, headers=headers).json()
        return reply

    def items(self, path: str, *, most: int, **query: object) -> Iterator[Json]:
        """Give the items of a list, page after page, at most `most`."""
        after: str | None = ""
        while after is not None and most > 0:
            page = self.get(path, **query, limit=min(most, 500), after=after or None)
            yield from page["items"][:most]
            most -= len(page["items"])
            after = page.get("next")

    def send(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Send a request, again where that is safe; return the reply.

        Raises:
            RefusedError: the server said no.
            UnreachableError: nobody answered as Terrace does.
        """
        headers = dict(options.pop("headers", {}))
        if method == "POST":
            headers.setdefault("Idempotency-Key", uuid4().hex)
        for number in range(1, self._tries + 1):
            try:
                reply = self._http.request(method, path, headers=headers, **options)
            except httpx.TransportError as error:
                if number == self._tries:
                    raise UnreachableError(f"{self._http.base_url}: {error}") from error
                self._sleep(min(2.0 ** (number - 1), LONGEST_PAUSE_SECONDS))
                continue
            if reply.status_code not in RETRIED or number == self._tries:
                return _checked(reply)
            self._sleep(_pause(reply, number))
        raise AssertionError("unreachable")  # the loop returns or raises


def _pause(reply: httpx.Response, number: int) -> float:
    wanted = reply.headers.get("Retry-After", "")
    seconds = float(wanted) if wanted.isdecimal() else 2.0 ** (number - 1)
    return min(seconds, LONGEST_PAUSE_SECONDS)


def _checked(reply: httpx.Response) -> httpx.Response:
    if reply.is_success:
        return reply
    try:
        document = reply.json()
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise UnreachableError(
            f"{reply.request.url} answered {reply.status_code}, not as Terrace does;"
            " is TERRACE_URL right?"
        )
    raise RefusedError(reply.status_code, document)


def _given(query: Mapping[str, object]) -> dict[str, str]:
    """Leave out what is not given."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in query.items()
        if value is not None and value != ""
    }
