"""Run a command where there is no network but 127.0.0.1, no IPv6, and the usual ports are taken.

Runs as root in a network namespace just made (`unshare --net`), with a bare Python: standard
library only. Arguments: the command.
"""

import fcntl
import socket
import struct
import subprocess
import sys
from pathlib import Path

SIOCGIFFLAGS = 0x8913
SIOCSIFFLAGS = 0x8914
IFF_UP = 1
USUAL_PORTS = (8000, 8001, 6400)


def main(command: list[str]) -> int:
    """Hold the ports while the command runs, and return its exit status."""
    for name in ("all", "default"):
        switch = Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6")
        if switch.exists():  # a kernel without IPv6 has none
            switch.write_text("1")
    raise_loopback()
    taken = [socket.create_server(("127.0.0.1", port)) for port in USUAL_PORTS]
    try:
        return subprocess.run(command, check=False).returncode
    finally:
        for listening in taken:
            listening.close()


def raise_loopback() -> None:
    """Do what `ip link set lo up` does, which a minimal system lacks."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as anything:
        reply = fcntl.ioctl(anything, SIOCGIFFLAGS, struct.pack("16sH22x", b"lo", 0))
        flags = struct.unpack("16sH", reply[:18])[1] | IFF_UP
        fcntl.ioctl(anything, SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", flags))


sys.exit(main(sys.argv[1:]))
