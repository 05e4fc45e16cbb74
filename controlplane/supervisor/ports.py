"""Find free ports on the loopback interface."""

import errno
import socket

from controlplane.supervisor.errors import StartError

ATTEMPTS = 200


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Tell whether a server could listen there now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As the servers do: an address whose last connection lingers may be taken again.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def next_free(port: int, host: str = "127.0.0.1", *, besides: frozenset[int] = frozenset()) -> int:
    """Return the first free port from `port` on that is not among `besides`.

    Raises:
        StartError: None of the next ones is free.
    """
    for candidate in range(port, min(port + ATTEMPTS, 65536)):
        if candidate not in besides and is_free(candidate, host):
            return candidate
    message = f"No free port from {port} to {port + ATTEMPTS} on {host}."
    raise StartError(message)


def listen(port: int, host: str = "127.0.0.1") -> socket.socket:
    """Return a socket that listens on the first free port from `port` on.

    Whoever holds it has the port for good: nobody can take it between looking and starting, and
    while its server is started again, connections wait instead of being refused.

    Raises:
        StartError: None of the next ports is free, or the address is not this machine's.
    """
    for candidate in range(port, min(port + ATTEMPTS, 65536)):
        try:
            return socket.create_server((host, candidate), backlog=512)
        except OSError as error:
            if error.errno not in {errno.EADDRINUSE, errno.EACCES}:
                message = f"Cannot listen on {host}: {error.strerror}. TERRACE_BIND is wrong?"
                raise StartError(message) from error
    message = f"No free port from {port} to {port + ATTEMPTS} on {host}."
    raise StartError(message)


def any_free() -> int:
    """Return a port that the kernel says is free."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
