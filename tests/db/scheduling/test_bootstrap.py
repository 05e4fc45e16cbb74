"""What an empty installation starts with."""

from datetime import UTC, datetime

import pytest

from scheduling.domain.bootstrap import ensure_installation
from scheduling.models import Cluster, Queue
from tenants.domain.access import load_actor
from tenants.models import OrgUnit, User

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def test_bootstrap_makes_an_admin_a_tenant_and_a_queue() -> None:
    """An empty database gets all that a first job needs."""
    ensure_installation(admin_username="admin", admin_password="correct horse", now=NOW)

    admin = User.objects.get()
    assert admin.check_password("correct horse")
    assert admin.must_change_password
    assert load_actor(admin).is_platform_admin
    assert Cluster.objects.count() == 1
    assert list(
        Queue.objects.order_by("name").values_list("name", "parent__name", "unit__name")
    ) == [("default", "root", "default"), ("root", None, None)]
    assert OrgUnit.objects.get().tenant == OrgUnit.objects.get()


def test_bootstrap_again_changes_nothing() -> None:
    """A second call keeps the password and adds no queue."""
    ensure_installation(admin_username="admin", admin_password="correct horse", now=NOW)

    made = ensure_installation(admin_username="admin", admin_password="another", now=NOW)

    assert made.is_new_admin is False
    assert User.objects.get().check_password("correct horse")
    assert sorted(Queue.objects.values_list("name", flat=True)) == ["default", "root"]
