"""Copy a task's output into a file, within a budget of bytes and of line length."""

from __future__ import annotations

import os

LINE_LIMIT_BYTES = 16_384
CUT_LINE = b" [terrace: line cut at %d bytes]"
CAP_MARKER = b"\n[terrace: output ends here, the limit of %d bytes for this attempt is reached]\n"


class Budget:
    """The bytes that both streams of an attempt may still write together."""

    __slots__ = ("left", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.left = limit


class CappedStream:
    """One stream's file. What is over a limit is read and thrown away: the task never blocks."""

    __slots__ = ("_budget", "_column", "_fd", "_is_capped", "_line_limit", "_path", "problem")

    def __init__(self, path: str, budget: Budget, *, line_limit: int = LINE_LIMIT_BYTES) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._path = path
        self._budget = budget
        self._line_limit = line_limit
        self._column = 0
        self._is_capped = False
        self.problem = ""

    def write(self, data: bytes) -> None:
        """Append what the limits allow."""
        if self._is_capped or self.problem:
            return
        kept = self._cut_lines(data)
        if len(kept) > self._budget.left:
            kept = kept[: self._budget.left] + CAP_MARKER % self._budget.limit
            self._is_capped = True
            self._note_cap(len(kept))
            self._budget.left = 0
        else:
            self._budget.left -= len(kept)
        self._append(kept)

    def close(self) -> None:
        """Bring the file to the disk and close it."""
        try:
            os.fsync(self._fd)
        except OSError as error:
            self.problem = self.problem or f"output may be lost: {error.strerror}"
        os.close(self._fd)

    def _append(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError as error:
            # A full or broken disk must not stop the task; the exit record says what was lost.
            self.problem = f"output lost from here on: {error.strerror}"

    def _note_cap(self, kept: int) -> None:
        """Leave the offset of the marker beside the file: the agent tells readers with it."""
        offset = os.fstat(self._fd).st_size + kept - len(CAP_MARKER % self._budget.limit)
        with open(f"{self._path}.cut", "w", encoding="ascii") as stream:
            stream.write(str(offset))

    def _cut_lines(self, data: bytes) -> bytes:
        """Shorten lines beyond the limit; jumps from newline to newline, a limit at a time."""
        limit = self._line_limit
        if self._column + len(data) <= limit:
            newline = data.rfind(b"\n")
            self._column = len(data) - newline - 1 if newline >= 0 else self._column + len(data)
            return data
        parts: list[bytes] = []
        position = 0
        while position < len(data):
            room = limit - self._column
            if room < 0:  # inside a line that was cut: wait for its end
                newline = data.find(b"\n", position)
                if newline < 0:
                    break
                position, self._column = newline, 0
                continue
            newline = data.rfind(b"\n", position, position + room + 1)
            if newline >= 0:
                parts.append(data[position : newline + 1])
                position, self._column = newline + 1, 0
            elif position + room < len(data):
                parts.append(data[position : position + room])
                parts.append(CUT_LINE % limit)
                position, self._column = position + room, limit + 1
            else:
                parts.append(data[position:])
                self._column += len(data) - position
                position = len(data)
        return b"".join(parts)
