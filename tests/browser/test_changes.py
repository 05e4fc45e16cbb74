"""A change set in a browser: typed, simulated while typing, checked, applied, reverted."""

from collections.abc import Callable

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from scheduling.models import Queue
from tests.browser.conftest import Visit
from tests.web.pages.conftest import Site

pytestmark = pytest.mark.browser
Open = Callable[..., Visit]
GPU = "nvidia.com/gpu"


def test_draft_simulate_apply_revert(site: Site, visit: Open) -> None:
    """Root plans a max for robots, sees its effect while typing, applies and reverts it."""
    seen = visit()
    seen.sign_in("root")
    page = seen.page
    seen.open("/changes/")
    page.get_by_label("What for").fill("Fewer for robots")
    page.get_by_role("button", name="New change set").click()
    page.get_by_label("Queue to add").fill("robots")
    page.get_by_role("button", name="Add", exact=True).click()

    page.get_by_label("Max GPU").fill("1")
    page.get_by_label("Max GPU").press("Tab")
    effect = page.locator("#change-effect")
    expect(effect).to_contain_text("Deserved then", timeout=30_000)
    drafted = Queue.objects.get(name="robots").max
    page.get_by_role("button", name="Save and check").click()
    expect(page.get_by_text("It keeps all the rules.")).to_be_visible()
    page.get_by_role("button", name="Apply now").click()
    expect(page.get_by_text("It is in force.")).to_be_visible()
    applied = Queue.objects.get(name="robots").max
    page.get_by_role("button", name="Revert").click()
    expect(page.get_by_text("What was before is in force again.")).to_be_visible()

    assert (drafted, applied) == ({}, {GPU: 1000})
    assert Queue.objects.get(name="robots").max == {}
    assert seen.violations == []
    assert seen.errors == []


@pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 390)])
def test_pages_pass_axe_and_fit(site: Site, visit: Open, theme: str, width: int) -> None:
    """Operations, changes and the wizards pass axe in both themes and do not scroll sideways."""
    seen = visit(width=width, theme=theme)
    seen.sign_in("root")
    page = seen.page
    seen.open("/changes/")
    page.get_by_label("What for").fill("Fewer for robots")
    page.get_by_role("button", name="New change set").click()
    change = page.url.removeprefix(seen.address)
    paths = (
        "/ops/",
        "/ops/starts/",
        "/wall/",
        "/cluster/?colour=queue",
        "/ops/evictions/",
        "/changes/",
        f"{change}?add=robots",
        "/queues/robots/",
        "/queues/robots/retire/",
        "/cluster/nodes/gpu-01/retire/",
    )
    wrong: dict[str, object] = {}

    for path in paths:
        seen.open(path)
        page.wait_for_load_state("networkidle")
        found = Axe().run(page).response["violations"]
        is_wide = page.evaluate("document.documentElement.scrollWidth > innerWidth + 1")
        if found or is_wide:
            nodes = [(one["id"], one["nodes"][0]["html"][:120]) for one in found]
            wrong[path] = [*nodes, *(["scrolls sideways"] if is_wide else [])]

    assert wrong == {}
    assert seen.violations == []
    assert seen.errors == []
