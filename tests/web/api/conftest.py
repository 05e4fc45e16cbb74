"""An installation with queues, a node and jobs of two tenants, and clients for its people."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from rest_framework.test import APIClient

from scheduling.models import Cluster, Job, Node, Queue
from tenants.models import User
from tests.factories.demo import make_cluster, make_job, make_node, make_queue
from tests.people import People


@dataclass(frozen=True, slots=True)
class Site:
    """`vision` > `robots` are the lab's queues, `mill` is another tenant's."""

    people: People
    cluster: Cluster
    vision: Queue
    robots: Queue
    mill: Queue
    node: Node
    bobs: Job
    charlies: Job


@pytest.fixture
def site(people: People) -> Site:
    now = datetime.now(UTC)
    cluster, root = make_cluster("main", now)
    vision = make_queue(cluster, people.vision, root, "vision", now, weight=2)
    robots = make_queue(cluster, people.robots, vision, "robots", now)
    mill = make_queue(cluster, people.mill, root, "mill", now)
    node = make_node(cluster, "gpu-01", now, gpus=2)
    bobs = make_job(robots, people.bob, "bobs-training", now)
    charlies = make_job(mill, people.charlie, "charlies-secret", now)
    return Site(people, cluster, vision, robots, mill, node, bobs, charlies)


As = Callable[[User], APIClient]


@pytest.fixture
def as_user() -> As:
    """Return a client that is signed in by session, as a user."""

    def client(user: User) -> APIClient:
        one = APIClient()
        one.force_login(user)
        return one

    return client


@pytest.fixture
def document() -> dict[str, object]:
    """A job that researchers of the lab may submit."""
    return {
        "name": "train",
        "queue": "robots",
        "roles": [
            {
                "name": "worker",
                "replicas": 2,
                "command": ["python", "train.py"],
                "cpu": "500m",
                "memory": "1Gi",
                "env": {"API_KEY": "very-secret"},
            }
        ],
    }
