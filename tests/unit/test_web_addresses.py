"""Which addresses events are sent to: public ones, and what the operator allows."""

from __future__ import annotations

import socket

import pytest

from tenants.domain import web_addresses
from tenants.domain.web_addresses import RefusedAddressError


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "http://127.1/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0.0.0.0/",
        "http://10.0.0.8/",
        "http://172.16.5.4/",
        "http://192.168.1.1/",
        "http://100.64.0.1/",
        "http://169.254.169.254/latest/meta-data",
        "http://224.0.0.1/",
        "http://255.255.255.255/",
        "http://[::1]/",
        "http://[::]/",
        "http://[fe80::1]/",
        "http://[fd00::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[64:ff9b::7f00:1]/",
        "http://[2002:7f00:1::]/",
        "http://localhost/",
        "http://LOCALHOST:8000/",
        "http://a.localhost/",
        "ftp://example.com/",
        "file:///etc/passwd",
        "//example.com/",
        "example.com",
        "https://user:word@example.com/",
        "https://example.com:0/",
        "https://example.com:99999/",
        "https://example.com/\r\nX: y",
        "https://exa mple.com/",
        "https://ex\u00e4mple.com/",
        "https://example.com/" + "x" * 500,
    ],
)
def test_address_that_is_refused(url: str) -> None:
    """Nothing of this machine or its network, in whatever spelling, and nothing but plain http."""
    with pytest.raises(RefusedAddressError):
        web_addresses.check(url, [])


def test_public_address_is_taken_apart() -> None:
    """Host, port and path are what the request needs."""
    one = web_addresses.check("https://hooks.example.com/terrace?team=a", [])
    other = web_addresses.check("http://[2606:4700::1111]:8080", [])

    assert (one.scheme, one.host, one.port, one.path, one.host_header) == (
        "https", "hooks.example.com", 443, "/terrace?team=a", "hooks.example.com"
    )  # fmt: skip
    assert (other.port, other.path, other.host_header) == (8080, "/", "[2606:4700::1111]:8080")


@pytest.mark.parametrize(
    "allowed", [["127.0.0.1"], ["127.0.0.0/8"], ["10.1.0.0/16", "127.0.0.1/32"]]
)
def test_operator_allows_what_is_not_public(allowed: list[str]) -> None:
    """By the host as it is written, or by its network; nothing else comes along."""
    assert web_addresses.resolve("http://127.0.0.1:9/", allowed).ips == ("127.0.0.1",)
    with pytest.raises(RefusedAddressError):
        web_addresses.check("http://192.168.1.1/", allowed)


def test_name_of_a_private_address_is_refused_when_looked_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A name that stands for one public and one private address is not talked to at all."""
    found = [(2, 1, 6, "", (ip, 443)) for ip in ("93.184.215.14", "10.0.0.5")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)

    with pytest.raises(RefusedAddressError, match=r"stands for 10\.0\.0\.5"):
        web_addresses.resolve("https://hooks.example.com/", [])
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found[:1])
    assert web_addresses.resolve("https://hooks.example.com/", []).ips == ("93.184.215.14",)
