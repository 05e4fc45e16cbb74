"""Pages ask the database the same number of questions, however many rows they show."""

from collections.abc import Callable

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tenants.models import User
from tests.factories.demo import make_job, make_node, make_queue
from tests.people import make_unit
from tests.web.pages.conftest import Site

Browse = Callable[[User], Client]

LISTS = (
    "/",
    "/jobs/",
    "/jobs/?state=waiting&queue=vision&q=train",
    "/jobs/?group=user",
    "/jobs/newer/?queue=vision",
    "/jobs/export.csv",
    "/notifications/",
    "/queues/",
    "/cluster/",
    "/queues/vision/",
    "/activity/",
    "/admin/images/",
    "/admin/org/",
    "/admin/people/",
    "/admin/tokens/",
    "/profile/",
    "/changes/",
)
TABS = ("", "tasks/", "timeline/", "logs/", "metrics/", "spec/", "events/", "files/", "why/")
MOST = 15


def _count(client: Client, path: str) -> int:
    with CaptureQueriesContext(
        connection,
    ) as queries:
        assert client.get(path).status_code == 200
    return len([one for one in queries if not one["sql"].startswith(("SAVEPOINT", "RELEASE"))])


@pytest.mark.parametrize("path", LISTS)
def test_list_costs_the_same_with_one_and_with_three_rows(
    site: Site, browse: Browse, path: str
) -> None:
    """With one and with three jobs, queues and nodes a page makes equally many queries."""
    client = browse(site.people.alice)
    client.get(path)
    with_one = _count(client, path)
    for number in range(2):
        make_job(site.robots, site.people.alice, f"more-training-{number}", site.now)
        make_node(site.cluster, f"more-{number}", site.now)
        unit = make_unit(f"more-{number}", site.people.vision)
        make_queue(site.cluster, unit, site.vision, f"more-{number}", site.now)

    with_three = _count(client, path)

    assert with_three == with_one
    assert with_one <= MOST


@pytest.mark.parametrize("tab", TABS)
def test_job_page_costs_the_same_for_more_tasks(site: Site, browse: Browse, tab: str) -> None:
    """A job of twenty tasks costs no more queries than one of two, and at most fifteen."""
    client = browse(site.people.bob)
    big = make_job(site.robots, site.people.bob, "big", site.now, replicas=20)
    client.get(f"/jobs/{site.bobs.id}/{tab}")

    small_cost = _count(client, f"/jobs/{site.bobs.id}/{tab}")
    big_cost = _count(client, f"/jobs/{big.id}/{tab}")

    assert big_cost == small_cost
    assert big_cost <= MOST
