"""The proxy that the faults of links are made with does what each of them means."""

import socket
import threading
from collections.abc import Iterator

import pytest

from tests.process.tcp_proxy import Address, Link, TcpProxy


@pytest.fixture
def proxy() -> Iterator[TcpProxy]:
    """A proxy in front of a server that repeats what it is told."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def repeat() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    while piece := connection.recv(1024):
                        connection.sendall(piece)

        threading.Thread(target=repeat, daemon=True).start()
        with TcpProxy(Address(port=server.getsockname()[1])) as running:
            yield running
        server.shutdown(socket.SHUT_RDWR)


def connect(proxy: TcpProxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=10)


def insist(client: socket.socket) -> None:
    """Go on after the end of what comes: the system then says that there is nobody."""
    while client.recv(16) == b"":
        client.sendall(b"meanwhile")


def test_all_passes_both_ways(proxy: TcpProxy) -> None:
    """Bytes come back as they were sent, and the end of one side reaches the other."""
    with connect(proxy) as client:
        client.sendall(b"x" * 100_000)
        client.shutdown(socket.SHUT_WR)
        came = b""
        while piece := client.recv(65_536):
            came += piece

    assert came == b"x" * 100_000
    assert proxy.connections == 1


def test_cut_resets_old_and_new_connections_until_it_is_over(proxy: TcpProxy) -> None:
    """Who is connected is reset, who connects is too; afterwards all is well."""
    with connect(proxy) as client:
        client.sendall(b"before")
        assert client.recv(16) == b"before"
        proxy.be(Link.CUT)
        assert client.recv(16) == b""

    with connect(proxy) as late, pytest.raises(OSError, match=r"reset|Broken pipe"):
        insist(late)
    proxy.be(Link.PASS)
    with connect(proxy) as client:
        client.sendall(b"after")
        assert client.recv(16) == b"after"


def test_stalled_link_keeps_what_it_was_given(proxy: TcpProxy) -> None:
    """Nobody is told that nothing goes through, and what waited arrives afterwards."""
    with connect(proxy) as client:
        client.sendall(b"before")
        assert client.recv(16) == b"before"
        proxy.be(Link.STALL)
        client.sendall(b"meanwhile")
        client.settimeout(0.1)
        with pytest.raises(TimeoutError):
            client.recv(16)

        proxy.be(Link.PASS)
        client.settimeout(10)
        assert client.recv(16) == b"meanwhile"


def test_slow_link_delays_each_piece(proxy: TcpProxy) -> None:
    """With a delay nothing is there before it is over."""
    proxy.be(Link.SLOW, delay_seconds=0.2)
    with connect(proxy) as client:
        client.sendall(b"late")
        client.settimeout(0.1)
        with pytest.raises(TimeoutError):
            client.recv(16)
        client.settimeout(10)
        assert client.recv(16) == b"late"
