"""How long a job will run, by what is known of others: the likest of whom enough is known.

1. Jobs that are alike in all that the caller knows, say of one owner and one image.
2. Its own time limit.
3. Jobs that ask for as many GPUs.
4. Any.

Jobs that still run count too (`survival`). A few jobs of as many GPUs say more than many of all:
large jobs run longer, and it is they that hold most of the cluster.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass

from scheduling.engine.types import GPU, Job
from scheduling.simulator.forecast import Basis, RunTime
from scheduling.simulator.survival import Survival

FEWEST = 3
"""Of fewer jobs that have ended nothing is learnt."""
MOST = 20_000
"""Jobs of all owners together that are learnt from."""
MOST_OF_AN_OWNER = 1000


@dataclass(frozen=True, slots=True)
class Ran:
    """A job that has started, and for how long it has run."""

    alike: Hashable
    """Equal for jobs whose run times are comparable."""
    gpus: int
    """Asked for in all, in thousandths."""
    seconds: float
    is_over: bool


class History:
    """What started jobs say of the run times of others."""

    def __init__(self, ran: Iterable[Ran]) -> None:
        """Take jobs that have started, from one time on whether they have ended or not."""
        known = list(ran)
        self._alike = _by((job.alike, job) for job in known)
        self._gpus = _by((job.gpus, job) for job in known)
        self._all = _by((None, job) for job in known).get(None)

    def run_time(self, alike: Hashable, *, gpus: int, limit: float | None) -> RunTime:
        """Return what is known of the run time of a job."""
        if (lasts := self._alike.get(alike)) is not None:
            return RunTime(lasts, Basis.HISTORY)
        if limit is not None:
            return RunTime(Survival.of([limit]), Basis.LIMIT)
        if (lasts := self._gpus.get(gpus)) is not None:
            return RunTime(lasts, Basis.SIZE)
        return RunTime(self._all, Basis.OTHERS) if self._all is not None else RunTime()


def gpus_of(job: Job) -> int:
    """Return how much of GPUs a job asks for in all, in thousandths."""
    return sum(role.request.get(GPU, 0) * role.replicas for role in job.roles)


def most_of_an_owner(owners: int) -> int:
    """Return how many of an owner's newest jobs to learn from where so many owners have jobs."""
    return min(MOST // max(owners, 1), MOST_OF_AN_OWNER)


def _by(ran: Iterable[tuple[Hashable, Ran]]) -> Mapping[Hashable, Survival]:
    ended: dict[Hashable, list[float]] = defaultdict(list)
    running: dict[Hashable, list[float]] = defaultdict(list)
    for key, job in ran:
        (ended if job.is_over else running)[key].append(job.seconds)
    return {
        key: Survival.of(seconds, running.get(key, ()))
        for key, seconds in ended.items()
        if len(seconds) >= FEWEST
    }
