"""The sign to end reaches every process of a worker, whatever happened to the others."""

import multiprocessing
from multiprocessing.connection import Connection

from worker.loops.stopping import Stopping

FORK = multiprocessing.get_context("fork")


def _sleep(stopping: Stopping, told: Connection) -> None:
    told.send("asleep")
    told.send(stopping.wait(60.0))


def test_sign_reaches_the_living_where_a_sleeper_was_killed() -> None:
    """Whoever is killed while it waits holds up neither who tells nor who else is told."""
    stopping = Stopping()
    here, there = FORK.Pipe()
    sleepers = [FORK.Process(target=_sleep, args=(stopping, there)) for _ in range(2)]
    for sleeper in sleepers:
        sleeper.start()
    assert [here.recv(), here.recv()] == ["asleep", "asleep"]
    assert not stopping.is_set()

    sleepers[0].kill()
    sleepers[0].join()
    stopping.set()
    stopping.set()

    assert here.recv() is True
    assert stopping.is_set()
    sleepers[1].join()
