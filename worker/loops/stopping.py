"""How a worker's main process tells its loops, in child processes, to end.

A warm shutdown waits for running tasks, and a loop is one that never ends by itself. The pipe is
made before the pool forks, so parent and children share it: a byte in it, which nobody reads, says
to all of them that they shall end. An event of `multiprocessing` waits until each process that
slept has woken, for ever where one of them was killed meanwhile.
"""

import os
import select


class Stopping:
    """A flag that is set once, by any process, and seen by all that were forked since."""

    def __init__(self) -> None:
        """Make the pipe."""
        self._read_end, self._write_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def set(self) -> None:
        """Tell all."""
        if not self.is_set():
            os.write(self._write_end, b"\0")

    def is_set(self) -> bool:
        """Tell whether it was set."""
        return self.wait(0.0)

    def wait(self, seconds: float) -> bool:
        """Wait until it is set, `seconds` at most, and tell whether it is."""
        poll = select.poll()
        poll.register(self._read_end, select.POLLIN)
        return bool(poll.poll(seconds * 1000))


STOPPING = Stopping()
