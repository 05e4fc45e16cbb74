"""How a worker's main process tells its loops, in child processes, to end.

A warm shutdown waits for running tasks, and a loop is one that never ends by itself. The event is
made before the pool forks, so parent and children share it.
"""

from multiprocessing import get_context
from multiprocessing.synchronize import Event

STOPPING: Event = get_context("fork").Event()
