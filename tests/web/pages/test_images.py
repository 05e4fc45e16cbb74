"""The table of images and runtimes: edited as a whole, problems at their row, conflicts shown."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from scheduling.domain import images
from scheduling.domain.images import RuleEdit
from scheduling.models import Cluster, ImageRule
from tenants.domain.access import load_actor
from tenants.models import AuditRow, User
from tests.factories.demo import make_job
from tests.people import make_unit
from tests.web.pages.conftest import Site

Browse = Callable[[User], Client]
PATH = "/admin/images/"
PYTHON = ("docker.io/library/python:*", "python", "")
TORCH = ("*/pytorch:*", "torch", "lab/vision")


def form(*rows: tuple[str, str, str], version: int = 1, action: str = "save") -> dict[str, Any]:
    """Return what the browser sends for these rows (Any: a form's values)."""
    return {
        "version": str(version),
        "pattern": [pattern for pattern, _runtime, _unit in rows],
        "runtime": [runtime for _pattern, runtime, _unit in rows],
        "unit": [unit for _pattern, _runtime, unit in rows],
        "reason": "new image",
        "action": action,
    }


def table() -> list[tuple[str, str, str | None]]:
    """Return the rules in force."""
    rules = ImageRule.objects.order_by("position")
    return list(rules.values_list("pattern", "runtime", "unit__name"))


def save(site: Site, *edits: RuleEdit) -> None:
    """Put a table in force, as Root."""
    images.replace_rules(
        actor=load_actor(site.people.root),
        cluster_id=site.cluster.id,
        edits=edits,
        expected_version=Cluster.objects.get(id=site.cluster.id).version,
        now=site.now,
    )


def typed(page: Any) -> list[tuple[str, str, str]]:
    """Return what stands in the fields of a page (Any: a test client's reply)."""
    return [(row.pattern, row.runtime, row.unit) for row in page.context["form"].rows]


def test_only_root_gets_fields(site: Site, browse: Browse) -> None:
    """Everyone with a grant reads the table; who administers runtimes edits it."""
    save(site, RuleEdit("python:*", "python"))

    pages = {user.username: browse(user).get(PATH) for user in site.people.everyone}

    assert {name: page.status_code for name, page in pages.items()} == {
        "root": 200,
        "alice": 200,
        "bob": 200,
        "charlie": 200,
    }
    assert {name: 'name="pattern"' in page.content.decode() for name, page in pages.items()} == {
        "root": True,
        "alice": False,
        "bob": False,
        "charlie": False,
    }
    assert all("python:*" in page.content.decode() for page in pages.values())


def test_who_may_not_edit_is_refused(site: Site, browse: Browse) -> None:
    """A POST of Alice's or Bob's, whichever button, changes nothing."""
    statuses = [
        browse(user).post(PATH, form(PYTHON, action=action)).status_code
        for user in (site.people.alice, site.people.bob)
        for action in ("save", "more")
    ]

    assert statuses == [403, 403, 403, 403]
    assert table() == []


def test_link_is_in_the_rail_of_administrators(site: Site, browse: Browse) -> None:
    """Root finds the page under Admin; Alice's rail has no such heading."""
    rails = [
        f'href="{PATH}"' in browse(user).get("/queues/").content.decode()
        for user in (site.people.root, site.people.alice)
    ]

    assert rails == [True, False]


def test_units_of_others_are_not_told(site: Site, browse: Browse) -> None:
    """Charlie's table has neither the rule nor the name of another tenant's unit."""
    unit = make_unit("hidden-unit", site.people.lab)
    save(site, RuleEdit("secret:*", "python", unit.id), RuleEdit("python:*", "python"))

    text = browse(site.people.charlie).get(PATH).content.decode()

    assert "python:*" in text
    assert "secret:*" not in text
    assert "hidden-unit" not in text


def test_table_is_saved_as_a_whole(site: Site, browse: Browse) -> None:
    """Rows are in force in their order, blank ones are left out, the record says why."""
    blank = ("", " ", "")

    page = browse(site.people.root).post(PATH, form(PYTHON, blank, TORCH, blank), follow=True)

    assert "Saved; the next cycle plans by this table." in page.content.decode()
    assert table() == [
        ("docker.io/library/python:*", "python", None),
        ("*/pytorch:*", "torch", "vision"),
    ]
    assert typed(page) == [PYTHON, TORCH, *[("", "", "")] * 3]
    assert AuditRow.objects.get(action="cluster.image_rules").reason == "new image"


def test_last_rule_can_be_removed(site: Site, browse: Browse) -> None:
    """Saving only blank rows leaves no rule."""
    save(site, RuleEdit("python:*", "python"))

    browse(site.people.root).post(PATH, form(("", "", ""), version=2))

    assert table() == []


def test_problems_stand_at_their_rows(site: Site, browse: Browse) -> None:
    """A rule without a runtime and a repeated one are told there; what was typed is kept."""
    rows = (("a:*", "", ""), PYTHON, PYTHON)

    page = browse(site.people.root).post(PATH, form(*rows))

    assert page.status_code == 422
    assert [sorted(row.errors) for row in page.context["form"].rows] == [
        ["runtime"],
        [],
        ["pattern"],
    ]
    assert typed(page) == list(rows)
    assert table() == []


def test_unknown_unit_stands_at_its_row(site: Site, browse: Browse) -> None:
    """A unit that is not there is told at its field, with what else is wrong there."""
    page = browse(site.people.root).post(PATH, form(PYTHON, ("a:*", "", "lab/nowhere")))

    text = page.content.decode()
    assert page.status_code == 422
    assert [sorted(row.errors) for row in page.context["form"].rows] == [[], ["runtime", "unit"]]
    assert 'id="unit-2-error"' in text
    assert "There is no such org unit" in text
    assert table() == []


def test_conflict_is_shown_and_not_overwritten(site: Site, browse: Browse) -> None:
    """The second of two sees the first's table beside their own, and can save it knowingly."""
    client = browse(site.people.root)
    client.post(PATH, form(PYTHON))

    page = client.post(PATH, form(TORCH))
    kept = table()
    client.post(PATH, form(*typed(page), version=page.context["form"].version))

    assert page.status_code == 409
    assert "Somebody was faster" in page.content.decode()
    assert [rule.pattern for rule in page.context["rules"]] == ["docker.io/library/python:*"]
    assert typed(page) == [TORCH]
    assert kept == [("docker.io/library/python:*", "python", None)]
    assert table() == [("*/pytorch:*", "torch", "vision")]


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        ("more", [PYTHON, TORCH, *[("", "", "")] * 3]),
        ("remove:0", [TORCH]),
        ("remove:7", [PYTHON, TORCH]),
        ("up:1", [TORCH, PYTHON]),
        ("up:0", [PYTHON, TORCH]),
        ("sideways", [PYTHON, TORCH]),
    ],
)
def test_buttons_rearrange_what_was_typed(
    site: Site, browse: Browse, action: str, expected: list[tuple[str, str, str]]
) -> None:
    """More, Remove and Up give the form back changed; nothing is in force before it is saved."""
    page = browse(site.people.root).post(PATH, form(PYTHON, TORCH, action=action))

    assert page.status_code == 200
    assert typed(page) == expected
    assert table() == []


def test_damaged_form_is_refused(site: Site, browse: Browse) -> None:
    """Columns of different lengths or no version are told, and the table stays."""
    save(site, RuleEdit("python:*", "python"))
    client = browse(site.people.root)
    whole = form(PYTHON, version=2)

    statuses = [
        client.post(PATH, damaged).status_code
        for damaged in (whole | {"unit": []}, whole | {"version": "x"})
    ]

    assert statuses == [422, 422]
    assert table() == [("python:*", "python", None)]


def test_offered_runtimes_are_suggested(site: Site, browse: Browse) -> None:
    """The runtimes of the nodes are in the field's list and below the table, with their nodes."""
    page = browse(site.people.root).get(PATH)

    assert page.context["offered"] == {"python": 1}
    assert '<option value="python">1 node</option>' in page.content.decode()


def test_empty_table_says_what_it_is_for(site: Site, browse: Browse) -> None:
    """Without a rule Bob reads what the table does and what he can do instead."""
    text = browse(site.people.bob).get(PATH).content.decode()

    assert "No image is mapped yet" in text
    assert "name a runtime or no image in your job" in text


def test_units_of_one_path_are_told_apart(site: Site, browse: Browse) -> None:
    """Two units whose paths read the same are written and found by their ids."""
    twin = make_unit("vision/robots", site.people.lab)  # reads as the team below `vision`
    save(site, RuleEdit("python:*", "python", twin.id))
    client = browse(site.people.root)

    page = client.get(PATH)
    client.post(PATH, form(*typed(page), version=2))

    assert typed(page)[0][2] == str(twin.id)
    assert ImageRule.objects.get().unit_id == twin.id


@pytest.mark.parametrize(("image", "has_link"), [("nowhere:1", True), ("", False)])
def test_unserved_image_leads_to_the_table(
    site: Site, browse: Browse, image: str, has_link: bool
) -> None:
    """The ladder of a job that waits for a runtime links to the table, that of another does not."""
    job = make_job(site.robots, site.people.bob, "imaged", site.now)
    job.spec["roles"][0]["image"] = image
    job.save(update_fields=["spec"])

    text = browse(site.people.bob).get(f"/jobs/{job.id}/why/now/").content.decode()

    assert (f'<a href="{PATH}"' in text) == has_link


@pytest.mark.parametrize(("image", "has_link"), [("nowhere:1", True), ("", False)])
def test_fit_panel_leads_to_the_table(
    site: Site, browse: Browse, image: str, has_link: bool
) -> None:
    """Beside a job form whose image no node serves stands the link, beside another it does not."""
    document = {
        "name": "imaged",
        "queue": "robots",
        "roles": [{"name": "worker", "image": image, "command": ["true"], "cpu": "1"}],
    }

    panel = browse(site.people.bob).post(
        "/jobs/new/fit/", {"mode": "yaml", "yaml": json.dumps(document)}
    )

    text = panel.content.decode()
    assert ("Would wait" in text, f'<a href="{PATH}"' in text) == (has_link, has_link)
