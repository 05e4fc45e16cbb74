"""What a node needs from the machine below it; real and simulated machines differ only here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from worker.agent.attempts import Attempt
from worker.protocol import AttemptReport, DeviceInfo, UsageSample


@dataclass(frozen=True, slots=True)
class Hardware:
    """What the machine has."""

    cpu_milli: int
    memory_bytes: int
    sockets: int = 1
    numa_nodes: list[dict[str, Any]] = field(default_factory=list)
    devices: list[DeviceInfo] = field(default_factory=list)


class Listener(Protocol):
    """Hears what happens to attempts; called in the event loop."""

    def on_report(self, attempt: Attempt, report: AttemptReport) -> None:
        """Take note of a new state."""


class Machine(Protocol):
    """Starts, ends and measures the processes of attempts."""

    is_simulated: bool

    def hardware(self) -> Hardware:
        """Return what is there now; called again to notice a device that failed."""

    def warnings(self) -> list[str]:
        """Return what this machine cannot do as it should, for a banner."""

    def start(self, attempt: Attempt, listener: Listener) -> None:
        """Begin to start the attempt; returns at once, the listener hears the rest."""

    def adopt(self, attempt: Attempt, listener: Listener) -> None:
        """Take over an attempt that was there before this agent."""

    def stop(self, attempt: Attempt, *, grace_seconds: float, reason: str) -> None:
        """Begin to end the attempt; safe to repeat."""

    def collect(self, attempt: Attempt) -> None:
        """Begin to bring the outputs of an attempt that is over; safe to repeat."""

    def renew_lease(self, deadline: float) -> None:
        """Let tasks run until this moment of the boot clock."""

    def may_start(self) -> bool:
        """Tell whether the lease still holds."""

    def strays(self, known: set[str], node: str) -> list[str]:
        """End processes of this node that belong to no known attempt; return their attempts."""

    async def samples(self, attempts: list[Attempt]) -> list[UsageSample]:
        """Measure the node, its devices and its attempts."""

    async def close(self) -> None:
        """Let go of everything; tasks go on."""
