"""Organisation files applied: everything or nothing, and again without a change."""

from pathlib import Path

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from scheduling.domain.bootstrap import ensure_installation
from scheduling.domain.org_files import Applied, apply_org_file
from scheduling.models import Cluster, Queue
from scheduling.spec.org_file import read_org_file
from tenants.domain.access import SYSTEM
from tenants.domain.errors import Invalid
from tenants.models import AuditRow, Grant, OrgUnit, User
from tests.people import NOW

pytestmark = pytest.mark.django_db

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "organisation.yaml"
GPU = "nvidia.com/gpu"


@pytest.fixture
def cluster() -> Cluster:
    """A new installation's cluster."""
    return ensure_installation(
        admin_username="admin", admin_password="correct horse battery staple", now=NOW
    ).cluster


def apply(text: str, cluster: Cluster) -> Applied:
    """Apply a text."""
    tenants, problems = read_org_file(text)
    assert problems == []
    return apply_org_file(actor=SYSTEM, tenants=tenants, cluster=cluster, now=NOW)


def test_example_twice(cluster: Cluster) -> None:
    """The example makes its tree, people who must change their passwords, and nothing twice."""
    first = apply(EXAMPLE.read_text(), cluster)
    rows = AuditRow.objects.count()
    second = apply(EXAMPLE.read_text(), cluster)

    assert first.units == [
        "Institute",
        "Vision",
        "Robots",
        "Medical images",
        "Speech",
        "Startup",
    ]
    robots = Queue.objects.get(name="robots")
    assert robots.parent is not None
    assert (robots.parent.name, robots.min) == ("vision", {GPU: 1000})
    assert sorted(first.passwords) == ["ada", "milo", "rosa", "stella", "sven", "vera"]
    ada = User.objects.get(username="ada")
    assert ada.check_password(first.passwords["ada"])
    assert ada.must_change_password
    assert not User.objects.get(username="medical-ci").has_usable_password()
    assert Grant.objects.filter(user__username="stella").count() == 2
    assert second == Applied()
    assert AuditRow.objects.count() == rows


def test_changed_numbers(cluster: Cluster) -> None:
    """A second file changes the numbers that it states and leaves the others."""
    apply("tenants: [{name: a, queue: {weight: 2, min: {cpu: 1}}}]", cluster)
    applied = apply("tenants: [{name: a, queue: {weight: 3}}]", cluster)

    queue = Queue.objects.get(name="a")
    assert applied.changed_queues == ["a"]
    assert (queue.weight, queue.min) == (3, {"cpu": 1000})


def test_all_or_nothing(cluster: Cluster) -> None:
    """A rule broken at the end leaves nothing of the beginning."""
    text = """
    tenants:
      - name: a
        queue: {max: {gpu: 1}}
        people: [{username: alice, role: org_admin}]
        units: [{name: b, queue: {max: {gpu: 2}}}]
    """
    with pytest.raises(Invalid) as error:
        apply(text, cluster)

    assert [problem.code for problem in error.value.problems] == ["queue_max_above_ancestor"]
    assert not OrgUnit.objects.filter(name="a").exists()
    assert not User.objects.filter(username="alice").exists()


def test_unknown_role(cluster: Cluster) -> None:
    """A role that does not exist is named with those that do."""
    with pytest.raises(Invalid) as error:
        apply("tenants: [{name: a, people: [{username: x, role: boss}]}]", cluster)

    assert error.value.problems[0].path == "people[x].role"


def test_command(cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command prints what it made, and a sentence where it cannot."""
    assert cluster.name == "default"
    call_command("create_org", str(EXAMPLE))
    assert "queues: institute, vision, robots" in capsys.readouterr().out

    broken = tmp_path / "org.yaml"
    broken.write_text("tenants: [{name: a, queue: {weight: 0}}]")
    for arguments, words in (
        ([str(tmp_path / "none.yaml")], "No such file"),
        ([str(EXAMPLE), "--cluster=mars"], "there are: default"),
        ([str(broken)], "out of range"),
    ):
        with pytest.raises(CommandError, match=words):
            call_command("create_org", *arguments)
