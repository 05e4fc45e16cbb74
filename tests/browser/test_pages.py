"""What needs a browser: the policy holds, axe is content, keys work, a job is submitted by form."""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from scheduling.models import Job, MetricSample, Queue
from tests.browser.conftest import Visit
from tests.factories.demo import make_job, run_task
from tests.web.pages.conftest import Site

pytestmark = pytest.mark.browser

SLOW_MS = 30_000
"""For Plotly: five megabytes to read on a busy machine."""
Open = Callable[..., Visit]


def _paths(site: Site) -> list[str]:
    job = f"/jobs/{site.bobs.id}/"
    tabs = (
        "",
        "tasks/",
        "tasks/worker/0/",
        "timeline/",
        "logs/",
        "logs/?attempt=all",
        "metrics/",
        "why/",
        "spec/",
        "events/",
        "files/",
    )
    shared = (
        "/",
        "/jobs/",
        "/jobs/?group=queue",
        "/notifications/",
        "/jobs/new/",
        "/jobs/new/?as=yaml",
        "/queues/",
        "/queues/?edit=1",
    )
    machines = ("/queues/robots/", "/cluster/", "/cluster/nodes/gpu-01/")
    admin = ("/admin/health/", "/admin/images/", "/admin/quotas/", "/admin/secrets/")
    return [*shared, *machines, *admin, "/activity/", *(job + tab for tab in tabs)]


def _run(site: Site) -> None:
    """Let Bob's job run and report, so that its charts have something to draw."""
    task = site.bobs.tasks.get(index=0)
    device = site.node.devices.get(index=0)
    attempt = run_task(task, site.node, site.robots, [device], site.now)
    Job.objects.filter(id=site.bobs.id).update(phase="Running", started_at=site.now)
    MetricSample.objects.bulk_create(
        MetricSample(
            job=site.bobs, attempt=attempt, line=n, at=site.now, values={"step": n, "loss": 1 / n}
        )
        for n in range(1, 9)
    )


def test_pages_obey_the_policy_and_raise_no_error(site: Site, visit: Open) -> None:
    """No page makes the browser report a violation or an error, charts included."""
    _run(site)
    seen = visit()
    seen.sign_in("root")

    for path in _paths(site):
        seen.open(path)
        for chart in seen.page.locator(".chart-canvas").all():
            chart.scroll_into_view_if_needed()
            expect(chart.locator(".main-svg").first).to_be_attached(timeout=SLOW_MS)

    assert seen.violations == []
    assert seen.errors == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing(site: Site, visit: Open, theme: str) -> None:
    """Each page passes axe's rules, contrast among them, in both themes."""
    _run(site)
    seen = visit(theme=theme)
    seen.sign_in("root")
    found: dict[str, list[Any]] = {}

    for path in _paths(site):
        seen.open(path)
        result = Axe().run(seen.page)
        if result.response["violations"]:
            found[path] = [
                (one["id"], [node["html"][:120] for node in one["nodes"][:3]])
                for one in result.response["violations"]
            ]

    assert not found, "\n".join(f"{path} {one}" for path, ones in found.items() for one in ones)


def test_nothing_is_wider_than_a_small_phone(site: Site, visit: Open) -> None:
    """At 320 px no page scrolls sideways as a whole."""
    _run(site)
    seen = visit(320)
    seen.sign_in("root")
    wide = []

    for path in _paths(site):
        seen.open(path)
        if seen.page.evaluate("document.documentElement.scrollWidth > window.innerWidth"):
            wide.append(path)

    assert wide == []


def test_job_is_submitted_by_form_without_scripts(site: Site, visit: Open) -> None:
    """With scripts switched off the form submits, and its errors stand at the field."""
    seen = visit(has_scripts=False)
    seen.sign_in("bob")
    page = seen.page

    seen.open("/jobs/new/")
    page.get_by_label("Name", exact=True).fill("Not Valid")
    page.get_by_label("Command", exact=True).fill("echo hello")
    page.get_by_role("button", name="Submit").click()
    expect(page.locator("#name-error")).to_contain_text("cannot be a job's name")
    page.get_by_label("Name", exact=True).fill("hello")
    page.get_by_role("button", name="Submit").click()

    expect(page.get_by_role("heading", level=1)).to_have_text("hello")
    assert Job.objects.get(name="hello").spec["roles"][0]["command"][-1] == "echo hello"


def test_form_tells_beside_it_whether_the_job_fits(site: Site, visit: Open) -> None:
    """The panel follows the fields: not valid, fits, would wait; roles are added and removed."""
    seen = visit()
    seen.sign_in("bob")
    page = seen.page
    fit = page.locator("#fit")

    seen.open("/jobs/new/")
    expect(fit).to_contain_text("Not complete yet")
    page.get_by_label("Name", exact=True).fill("hello")
    page.get_by_label("Command", exact=True).fill("echo hello")
    page.get_by_label("Command", exact=True).blur()
    expect(fit).to_contain_text("Fits now")
    page.get_by_role("button", name="Add a role").click()
    expect(page.get_by_role("heading", name="Role 2")).to_be_visible()
    page.locator("#roles-1-gpu").fill("64")
    page.locator("#roles-1-name").fill("big")
    page.locator("#roles-1-command").fill("true")
    page.locator("#roles-1-command").blur()
    expect(fit).to_contain_text("Would wait")
    page.locator("#roles-1-gpu").fill("many")
    expect(fit.get_by_role("link", name="Role big · GPUs")).to_be_visible()
    expect(page.locator("#roles-1-gpu")).to_have_attribute("aria-invalid", "true")
    page.get_by_role("button", name="Remove").nth(1).click()
    expect(fit).to_contain_text("Fits now")

    assert seen.violations == []


def test_yaml_is_edited_with_marks_at_its_problems(site: Site, visit: Open) -> None:
    """What is typed into the editor is checked and sent; a problem leads to its line."""
    seen = visit()
    seen.sign_in("bob")
    page = seen.page
    fit = page.locator("#fit")

    seen.open("/jobs/new/?as=yaml")
    editor = page.get_by_role("textbox", name="Job as YAML")
    expect(page.locator("#yaml")).to_be_hidden()  # the editor has come in its place
    editor.press("Control+a")
    page.keyboard.insert_text("name: typed\nqueue: robots\nroles:\n- name: worker\n  replcas: 1\n")
    expect(fit).to_contain_text("Not valid yet")
    fit.get_by_role("button", name="line 5").click()
    expect(editor).to_be_focused()
    page.keyboard.press("End")
    page.keyboard.press("Shift+Home")
    page.keyboard.insert_text("command: echo hello")
    expect(fit).to_contain_text("Fits now")
    editor.press("Tab")
    expect(editor).not_to_be_focused()
    page.get_by_role("button", name="Submit").click()

    expect(page.get_by_role("heading", level=1)).to_have_text("typed")
    assert seen.violations == []
    assert seen.errors == []


def test_tree_of_queues_is_walked_by_arrow_keys(site: Site, visit: Open) -> None:
    """Down moves, left closes what is open, right opens it again, Enter opens the queue."""
    seen = visit()
    seen.sign_in("root")
    page = seen.page
    seen.open("/queues/")
    robots = page.locator(f"#queue-row-{site.robots.id}")
    vision = page.locator(f"#queue-row-{site.vision.id}")

    vision.focus()
    page.keyboard.press("ArrowLeft")
    expect(robots).to_be_hidden()
    page.keyboard.press("ArrowRight")
    expect(robots).to_be_visible()
    page.keyboard.press("ArrowDown")
    expect(robots).to_be_focused()
    page.keyboard.press("Enter")

    expect(page.get_by_role("heading", level=1)).to_have_text("robots")


def test_effect_of_a_weight_is_shown_before_it_is_applied(site: Site, visit: Open) -> None:
    """Typing brings what is wrong to its field, or the shares before and after; Apply writes it."""
    seen = visit()
    seen.sign_in("root")
    page = seen.page

    seen.open("/queues/?edit=1")
    field = page.get_by_label("Max of robots")
    field.fill("many")
    expect(field).to_have_accessible_description(re.compile("is not an amount of"))
    field.fill("1")
    expect(field).to_have_accessible_description("")
    assert field.get_attribute("aria-invalid") is None
    field.blur()
    expect(page.locator("#queue-preview")).to_contain_text("Deserved then")
    assert Queue.objects.get(id=site.robots.id).max == {}
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_text("Applied to robots.")).to_be_visible()

    assert Queue.objects.get(id=site.robots.id).max == {"nvidia.com/gpu": 1000}


def test_keys_lead_through_the_pages(site: Site, visit: Open) -> None:
    """`g j` opens the jobs, `j x` choose a row, `c l w` act on it, `?` helps and switches off."""
    seen = visit()
    seen.sign_in("bob")
    page = seen.page

    page.keyboard.press("g")
    page.keyboard.press("j")
    expect(page.get_by_role("heading", level=1)).to_have_text("Jobs")
    page.keyboard.press("j")
    page.keyboard.press("x")
    expect(page.get_by_label(f"Choose {site.bobs.name}")).to_be_checked()
    expect(page.get_by_role("button", name="Suspend")).to_be_visible()
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("link", name=site.bobs.name).focus()
    with page.expect_navigation():
        page.keyboard.press("c")
    expect(page.get_by_text("Done for 1 job.")).to_be_visible()
    page.keyboard.press("j")
    page.keyboard.press("l")
    expect(page.get_by_role("link", name="Logs", exact=True)).to_have_attribute(
        "aria-current", "page"
    )
    page.keyboard.press("w")
    expect(page.get_by_role("link", name="Why", exact=True)).to_have_attribute(
        "aria-current", "page"
    )
    page.keyboard.press("?")
    expect(page.get_by_role("heading", name="Keyboard")).to_be_visible()
    page.get_by_label("Single-key shortcuts").uncheck()
    page.get_by_role("button", name="Close").click()
    page.keyboard.press("l")
    expect(page.get_by_role("link", name="Why", exact=True)).to_have_attribute(
        "aria-current", "page"
    )
    page.keyboard.press("Control+k")
    page.keyboard.type("robo")
    page.locator("#palette").get_by_role("link", name="robots", exact=True).click()

    expect(page.get_by_role("heading", level=1)).to_have_text("robots")


def test_new_job_is_told_behind_a_pill(site: Site, visit: Open) -> None:
    """A job that came later is counted on the open list and shown by a click."""
    seen = visit()
    seen.sign_in("bob")
    page = seen.page
    seen.open("/jobs/?queue=robots")
    expect(page.locator("[data-live-badge]")).to_have_text("Live", timeout=SLOW_MS)

    make_job(site.robots, site.people.bob, "later", datetime.now(UTC))
    page.get_by_role("link", name="1 new").click(timeout=SLOW_MS)

    expect(page.get_by_role("link", name="later", exact=True)).to_be_visible()


def test_phone_reaches_every_page_and_cancels_with_one_hand(site: Site, visit: Open) -> None:
    """More opens the rail, and a job's cancel lies above the bottom bar."""
    seen = visit(390)
    seen.sign_in("bob")
    page = seen.page

    page.get_by_role("link", name="More").click()
    page.get_by_role("link", name="Activity").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Activity")
    seen.open(f"/jobs/{site.bobs.id}/")
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Cancel").click()

    expect(page.get_by_text("The job is being cancelled.")).to_be_visible()


def test_failed_part_says_since_when_it_is_stale(site: Site, visit: Open) -> None:
    """The fit panel keeps what it showed, dimmed, with code and retry; success takes both away."""
    del site
    seen = visit()
    seen.sign_in("bob")
    page = seen.page
    seen.open("/jobs/new/")
    fit = page.locator("#fit")
    expect(fit).to_contain_text("Not complete yet")

    page.route("**/jobs/new/fit/", lambda route: route.fulfill(status=500))
    page.get_by_label("Name", exact=True).fill("hello")
    expect(page.get_by_text("Not refreshed since")).to_be_visible()
    expect(fit).to_contain_text("Not complete yet")
    page.unroute("**/jobs/new/fit/")
    page.get_by_label("Command", exact=True).fill("true")

    expect(fit).to_contain_text("Fits now")
    expect(page.get_by_text("Not refreshed since")).to_be_hidden()


def test_theme_lasts(site: Site, visit: Open) -> None:
    """A chosen theme is there after a reload."""
    del site
    seen = visit()
    seen.sign_in("bob")
    page = seen.page

    page.get_by_label("Theme").click()
    with page.expect_response("**/preferences/theme/"):
        page.get_by_role("button", name="Dark").click()
    page.reload()

    assert page.locator("html").get_attribute("data-theme") == "dark"
