"""Pages that stay open while things break: what they show is compared with what a fresh one shows.

A page is what `live.js` is to the server: a socket, regions that it follows, and the HTML that it
was last sent for each. It opens a new socket whenever the old one breaks, and says what it has.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection
from typing import Any, Self

from websockets.exceptions import WebSocketException
from websockets.sync.client import ClientConnection, connect

PAUSE_SECONDS = 0.5
LOOK_SECONDS = 0.5
PATIENCE_SECONDS = 10.0


class OpenPage:
    """One page, followed in a thread of its own until it is closed."""

    def __init__(self, address: Callable[[], str]) -> None:
        """Take what gives the address of a new socket."""
        self.shown: dict[str, str] = {}
        self.steps_back: list[str] = []
        """Frames whose number did not follow the last one's."""
        self.sockets = 0
        self._address = address
        self._has: dict[str, str] = {}
        self.regions: list[str] = []
        self._said = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="page", daemon=True)

    def __enter__(self) -> Self:
        """Open it."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self._end.set()
        self._thread.join()

    def follow(self, *regions: str) -> None:
        """Show these regions too."""
        self.regions += regions

    def _run(self) -> None:
        while not self._end.is_set():
            try:
                with connect(
                    self._address(),
                    open_timeout=PATIENCE_SECONDS,
                    ping_interval=2,
                    ping_timeout=PATIENCE_SECONDS,
                    proxy=None,
                ) as socket:
                    self.sockets += 1
                    self._listen(socket)
            except (OSError, AssertionError, WebSocketException):
                self._end.wait(PAUSE_SECONDS)  # the server is away: try again

    def _listen(self, socket: ClientConnection) -> None:
        self._said, last = 0, 0
        while not self._end.is_set():
            self._subscribe(socket)
            try:
                frame = json.loads(socket.recv(timeout=LOOK_SECONDS))
            except TimeoutError:
                continue
            if "seq" not in frame:
                continue
            if frame["seq"] != last + 1:
                self.steps_back.append(f"{last} -> {frame['seq']}")
            last = frame["seq"]
            for update in frame["updates"]:
                self._take(update)

    def _subscribe(self, socket: ClientConnection) -> None:
        new = self.regions[self._said :]
        if not new:
            return
        self._said += len(new)
        regions = [{"key": key, "has": self._has.get(key, "")} for key in new]
        socket.send(json.dumps({"do": "subscribe", "regions": regions}))

    def _take(self, update: dict[str, Any]) -> None:
        if update.get("gone"):
            self.shown[update["key"]] = ""
        elif "html" in update:
            self.shown[update["key"]] = update["html"]
            self._has[update["key"]] = update["has"]


def fresh(address: Callable[[], str], regions: Collection[str]) -> dict[str, str]:
    """Return what a page that is opened now shows of these regions."""
    with OpenPage(address) as page:
        page.follow(*regions)
        waited = threading.Event()
        for _ in range(int(PATIENCE_SECONDS * 10)):
            if page.shown.keys() >= set(regions):
                break
            waited.wait(0.1)
        return dict(page.shown)
