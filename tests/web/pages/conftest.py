"""An installation with queues, nodes and jobs of two tenants, and browsers for its people."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client

from scheduling.models import Cluster, Job, Lease, Node, Queue
from tenants.models import User
from tests.factories.demo import make_cluster, make_job, make_node, make_queue
from tests.people import People


@dataclass(frozen=True, slots=True)
class Site:
    """What stands in the tables: `vision` and `robots` are the lab's, `mill` another tenant's."""

    people: People
    cluster: Cluster
    vision: Queue
    robots: Queue
    mill: Queue
    node: Node
    bobs: Job
    charlies: Job
    now: datetime


@pytest.fixture
def site(people: People) -> Site:
    return build_site(people)


def build_site(people: People) -> Site:
    """Write the installation; the tests in a browser use it too."""
    now = datetime.now(UTC)
    cluster, root = make_cluster("main", now)
    Lease.objects.create(
        scope=f"scheduler:{cluster.id}",
        holder="test",
        epoch=1,
        expires_at=now + timedelta(days=1),
        acquired_at=now,
    )
    vision = make_queue(cluster, people.vision, root, "vision", now, weight=2)
    robots = make_queue(cluster, people.robots, vision, "robots", now)
    mill = make_queue(cluster, people.mill, root, "mill", now)
    node = make_node(cluster, "gpu-01", now, gpus=8)
    bobs = make_job(robots, people.bob, "bobs-training", now)
    charlies = make_job(mill, people.charlie, "charlies-secret", now)
    return Site(people, cluster, vision, robots, mill, node, bobs, charlies, now)


@pytest.fixture
def browse() -> Callable[[User], Client]:
    def signed_in(user: User) -> Client:
        client = Client()
        client.force_login(user)
        return client

    return signed_in
