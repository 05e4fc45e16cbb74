"""When Python's collector of garbage may run: not while thousands of rows are made."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collecting() -> Iterator[None]:
    """Switch the garbage collector off: a batch makes 100,000 objects and hardly any garbage.

    Left on, it would walk all that is alive again and again, half of the time of a batch.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
