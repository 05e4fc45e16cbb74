"""Which addresses Terrace may be told to talk to: never its own machine or network by accident.

A person who may set a webhook must not be able to make Terrace ask services that only Terrace can
reach (server-side request forgery). So only public addresses are talked to, unless the operator
names others in TERRACE_WEBHOOK_ALLOWED. The name is looked up once, at the moment of the request,
and the connection goes to the address that was looked at: a name that changes in between gains
nothing.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

LONGEST_URL = 500
PORTS = {"http": 80, "https": 443}
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
TRANSLATED = (ipaddress.ip_network("64:ff9b::/96"), ipaddress.ip_network("64:ff9b:1::/48"))
"""IPv6 networks behind which any IPv4 address may lie (NAT64)."""


class RefusedAddressError(ValueError):
    """An address that is not talked to; the text says why."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where to connect to, and what to ask there."""

    scheme: str
    host: str
    port: int
    path: str
    ips: tuple[str, ...] = ()

    @property
    def host_header(self) -> str:
        """The host as a request names it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"


def parse(url: str) -> Target:
    """Take a URL apart, without looking anything up.

    Raises:
        RefusedAddressError: it is no plain http(s) address.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise RefusedAddressError("it is not an address") from None
    if len(url) > LONGEST_URL or not url.isascii() or not url.isprintable() or " " in url:
        raise RefusedAddressError("it is longer than 500 characters, or has others than ASCII's")
    if parts.scheme not in PORTS or not parts.hostname:
        raise RefusedAddressError("it does not begin with https:// or http:// and a host")
    if parts.username is not None or parts.password is not None:
        raise RefusedAddressError("it holds a user name; receivers know us by the signature")
    if port == 0:
        raise RefusedAddressError("port 0 is none")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(parts.scheme, parts.hostname, port or PORTS[parts.scheme], path)


def check(url: str, allowed: Sequence[str]) -> Target:
    """Return the target of a URL that may be talked to, as far as can be told without asking.

    Raises:
        RefusedAddressError: it is no address, or names one that is not public.
    """
    target = parse(url)
    literal = _literal(target.host)
    if literal is not None and not may_reach(literal, target.host, allowed):
        raise RefusedAddressError(f"{target.host} is not a public address")
    is_local = target.host == "localhost" or target.host.endswith(".localhost")
    if is_local and target.host not in allowed:
        raise RefusedAddressError(f"{target.host} is this machine")
    return target


def resolve(url: str, allowed: Sequence[str]) -> Target:
    """Look a host up; return the target with the addresses to connect to.

    Raises:
        RefusedAddressError: one of its addresses may not be talked to.
        OSError: the name is not known.
    """
    target = check(url, allowed)
    found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    ips = dict.fromkeys(str(entry[4][0]).partition("%")[0] for entry in found)
    for ip in ips:
        # One bad address refuses all: which of them is connected to is not ours to choose.
        if not may_reach(ipaddress.ip_address(ip), target.host, allowed):
            raise RefusedAddressError(f"{target.host} stands for {ip}, no public address")
    return Target(target.scheme, target.host, target.port, target.path, tuple(ips))


def may_reach(ip: Address, host: str, allowed: Sequence[str]) -> bool:
    """Tell whether an address is public, or the operator allows it by name or network."""
    if host in allowed:
        return True
    plain = _plain(ip)
    for word in allowed:
        try:
            network = ipaddress.ip_network(word)
        except ValueError:
            continue  # a host's name
        if plain.version == network.version and plain in network:
            return True
    return plain.is_global and not plain.is_multicast


def _plain(ip: Address) -> Address:
    """Return the IPv4 address that an IPv6 one stands for, if it does."""
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is not None:
            return ip.ipv4_mapped
        if ip.sixtofour is not None:
            return ip.sixtofour
        if any(ip in network for network in TRANSLATED):
            return ipaddress.IPv4Address(int(ip) & 0xFFFF_FFFF)
    return ip


def _literal(host: str) -> Address | None:
    """Return the address that a host is written as; also in the old ways that libraries read."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        pass
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host))  # 127.1, 0x7f000001, 2130706433
    except OSError:
        return None
