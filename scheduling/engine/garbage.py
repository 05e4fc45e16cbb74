"""When Python's collector of garbage may run: not while thousands of objects are made."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collecting() -> Iterator[None]:
    """Switch the garbage collector off: a cycle or a batch makes many objects, hardly any garbage.

    Left on, it would walk all that is alive again and again: a fifth of the time of a cycle, half
    of that of a batch of rows.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
