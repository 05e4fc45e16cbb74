"""What an empty installation starts with."""

from datetime import UTC, datetime

import pytest

from scheduling.domain.bootstrap import bootstrap
from scheduling.models import Cluster, Queue
from tenants.domain.access import load_actor
from tenants.models import AuditRow, OrgUnit, User

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def test_bootstrap_makes_an_admin_a_tenant_and_a_queue() -> None:
    """An empty database gets all that a first job needs."""
    bootstrap(password="correct horse", now=NOW)

    admin = User.objects.get()
    assert admin.check_password("correct horse")
    assert admin.must_change_password
    assert load_actor(admin).is_platform_admin
    assert list(Cluster.objects.values_list("name", flat=True)) == ["main"]
    assert list(
        Queue.objects.order_by("name").values_list("name", "parent__name", "unit__name")
    ) == [("default", "root", "default"), ("root", None, None)]
    assert OrgUnit.objects.get().tenant == OrgUnit.objects.get()


def test_bootstrap_records_what_it_made() -> None:
    """Each thing has its audit row, by the system."""
    bootstrap(password="correct horse", now=NOW)

    assert sorted(AuditRow.objects.values_list("action", "actor_label")) == [
        ("cluster.create", "system"),
        ("org.create", "system"),
        ("queue.create", "system"),
        ("user.create", "system"),
    ]


def test_bootstrap_again_changes_nothing() -> None:
    """A second start keeps password, names and trees as they are."""
    bootstrap(password="correct horse", now=NOW)
    Queue.objects.filter(name="default").update(name="renamed")

    made = bootstrap(password="another", now=NOW)

    assert (made.admin, made.cluster) == (None, None)
    assert User.objects.get().check_password("correct horse")
    assert sorted(Queue.objects.values_list("name", flat=True)) == ["renamed", "root"]
    assert AuditRow.objects.count() == 4
