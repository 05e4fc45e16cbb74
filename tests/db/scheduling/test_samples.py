"""Time series of clusters and queues: written on change, thinned with age, taken once."""

from datetime import datetime, timedelta
from time import monotonic

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from scheduling.domain import leases, samples
from scheduling.models import ClusterSample, QueueSample, QueueShare
from tests.factories.cluster import Site, role
from worker.loops.base import HeldLease
from worker.loops.reconcile import ReconcileLoop

GPU = "nvidia.com/gpu"


def held(site: Site) -> list[tuple[datetime, int]]:
    """Return when the queue held how many GPUs, as it was sampled."""
    rows = QueueSample.objects.filter(queue=site.queue).order_by("at")
    return [(row.at, row.allocated.get(GPU, 0) // 1000) for row in rows]


def test_cluster_is_sampled_with_its_capacity(site: Site) -> None:
    """A sample tells what could be given, what is held, how many jobs wait and run."""
    site.node(gpus=4)
    site.started(role(gpu_milli=3000))
    site.submit(role(gpu_milli=3000))

    samples.take(now=site.now)

    row = ClusterSample.objects.get()
    assert (row.capacity[GPU], row.allocated[GPU]) == (4000, 3000)
    assert (row.waiting, row.running) == (1, 1)


def test_queue_is_sampled_when_it_changed(site: Site) -> None:
    """Rows are written only where amounts differ from the newest row."""
    site.node(gpus=4)
    site.cycle()
    samples.take(now=site.now)
    first = site.now
    samples.take(now=site.later(30))
    site.started(role(gpu_milli=2000))
    site.cycle()
    samples.take(now=site.later(30))

    assert held(site) == [(first, 0), (site.now, 2)]
    assert ClusterSample.objects.count() == 3


def test_sample_is_not_taken_twice(site: Site) -> None:
    """Two holders one after the other take one sample in half a minute."""
    results = [
        samples.take(now=site.now),
        samples.take(now=site.later(5)),
        samples.take(now=site.later(30)),
    ]

    assert results == [True, False, True]


def test_old_samples_are_thinned_and_dropped(site: Site) -> None:
    """Of what is a day old the last of ten minutes stays, of a month only the newest value."""
    start = site.now.replace(hour=0, minute=0, second=0)
    for minutes in (0, 2, 9, 10, 40):
        QueueSample.objects.create(
            queue=site.queue,
            at=start + timedelta(minutes=minutes),
            deserved={},
            allocated={GPU: minutes * 1000},
            requested={},
        )

    samples.thin(now=start + timedelta(hours=23))
    fresh = [minutes for _at, minutes in held(site)]
    samples.thin(now=start + timedelta(hours=25))
    coarse = [minutes for _at, minutes in held(site)]
    samples.thin(now=start + timedelta(days=31))
    dropped = [minutes for _at, minutes in held(site)]

    assert fresh == [0, 2, 9, 10, 40]
    assert coarse == [9, 10, 40]
    assert dropped == [40]


@pytest.mark.parametrize("queues", [1, 4])
def test_cost_does_not_grow_with_queues(site: Site, queues: int) -> None:
    """Six statements, however many queues there are."""
    QueueShare.objects.all().delete()
    QueueShare.objects.create(queue=site.queue, updated_at=site.now)
    for _ in range(queues):
        site.node(gpus=1)

    with CaptureQueriesContext(connection) as asked:
        samples.take(now=site.now)

    assert len(asked) <= 7


def test_loop_takes_samples(site: Site) -> None:
    """The reconcile loop samples in its first turn and not again at once."""
    epoch = leases.acquire(scope="reconcile", holder="test", ttl_seconds=600)
    assert epoch is not None
    loop = ReconcileLoop()

    for _ in range(2):
        loop.turn(HeldLease("reconcile", "test", epoch, 600.0, monotonic()))

    assert ClusterSample.objects.count() == 1
