"""Who opens a socket: a browser by its session, a program by a one-use ticket of its token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from typing import Any
from urllib.parse import parse_qs, urlsplit

from django.conf import settings
from django.contrib.auth import HASH_SESSION_KEY, get_user
from django.http import HttpRequest
from django.http.cookie import parse_cookie
from django.http.request import validate_host
from django.utils.translation import get_language_from_request

from controlplane.live.authority import Reader, SignedIn, reader_of
from tenants.domain import socket_tickets
from tenants.models import User

Headers = list[tuple[bytes, bytes]]
LONGEST_TICKET = 100


@dataclass(frozen=True, slots=True)
class Entry:
    """Somebody who may have a socket: as whom it reads, and what ends it."""

    reader: Reader
    signed_in: SignedIn


def ticket_of(scope: Mapping[str, Any]) -> str | None:
    """Return the ticket in the socket's address, if there is one."""
    text = scope.get("query_string", b"").decode("latin-1")
    found = parse_qs(text, keep_blank_values=True).get("ticket")
    return found[0][:LONGEST_TICKET] if found else None


def is_allowed_origin(headers: Headers, *, has_ticket: bool) -> bool:
    """Tell whether the page that opens the socket came from here: its Origin, exactly.

    That is PUBLIC_URL, or the host that was asked, if it is one of ours; scheme and port count. A
    missing Origin is refused without a ticket: every browser sends one along with its cookies.
    """
    origins = [value.decode("latin-1") for name, value in headers if name == b"origin"]
    hosts = [value.decode("latin-1") for name, value in headers if name == b"host"]
    if has_ticket and not origins:
        return True
    if len(origins) != 1 or len(hosts) != 1:
        return False
    if origins[0] == settings.PUBLIC_URL:
        return True
    host = urlsplit(f"//{hosts[0]}").hostname or ""
    scheme = urlsplit(settings.PUBLIC_URL).scheme
    return validate_host(host, settings.ALLOWED_HOSTS) and origins[0] == f"{scheme}://{hosts[0]}"


def enter(headers: Headers, ticket: str | None) -> Entry | None:
    """Return who opens a socket; None for nobody. Some four queries, in one thread.

    With a ticket the session does not count: a program that has both is the token, no more.
    """
    if ticket is not None:
        return _by_ticket(headers, ticket)
    request = _request(headers)
    key = request.COOKIES.get(settings.SESSION_COOKIE_NAME)
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(key)
    user = get_user(request)
    if not isinstance(user, User):
        return None
    signed_in = SignedIn(
        request.session.session_key or "", user.pk, request.session.get(HASH_SESSION_KEY, "")
    )
    return Entry(reader_of(user, _language(request, user)), signed_in)


def _by_ticket(headers: Headers, ticket: str) -> Entry | None:
    found = socket_tickets.redeem(ticket, datetime.now(UTC))
    if found is None:
        return None
    user, token = found
    reader = reader_of(user, _language(_request(headers), user), token)
    return Entry(reader, SignedIn("", user.pk, "", token.id))


def _request(headers: Headers) -> HttpRequest:
    """Return what Django needs to find session and language."""
    by_name = {name: value.decode("latin-1") for name, value in headers}
    request = HttpRequest()
    request.COOKIES.update(parse_cookie(by_name.get(b"cookie", "")))
    request.META["HTTP_ACCEPT_LANGUAGE"] = by_name.get(b"accept-language", "")
    return request


def _language(request: HttpRequest, user: User) -> str:
    """Return the language in which the page was read: the cookie's, the user's, the browser's."""
    if user.language and settings.LANGUAGE_COOKIE_NAME not in request.COOKIES:
        return user.language
    return get_language_from_request(request)
