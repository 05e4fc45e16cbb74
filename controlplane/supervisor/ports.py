"""Find free ports on the loopback interface."""

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


def any_free() -> int:
    """Return a port that the kernel says is free."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
