"""Every page there is, found by walking the addresses: axe is content.

One page in four is looked at by turns of the day, in one theme; TERRACE_WHOLE_MATRIX=1 looks at all
in both. `test_pages.py` looks at the pages of everyday work in each run.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.conf import settings
from playwright.sync_api import Page

from tests.browser.conftest import Visit
from tests.people import PASSWORD
from tests.web.walls.scene import Scene, is_whole, make_scene
from tests.web.walls.whole_pages import whole_pages

pytestmark = pytest.mark.browser

Open = Callable[..., Visit]
THEMES = ("light", "dark")
SHARE = 4
FEWEST_STOPS = 10
FOCUSED = """() => {
  const all = [...document.querySelectorAll("*")];
  const one = document.activeElement;
  return one === document.body ? null : all.indexOf(one) + " " + one.outerHTML.slice(0, 80);
}"""
"""Script that returns what has the focus, and where it stands; null: nothing of the page."""


def turn_of(path: str) -> int:
    """Return a number for a page that moves on each day; ids in it change with each run."""
    plain = "/".join(part for part in path.split("/") if len(part) < 30)
    return zlib.crc32(plain.encode()) + datetime.now(UTC).toordinal()


def themes_of(path: str) -> tuple[str, ...]:
    """Return the themes in which a page is looked at in this run."""
    if is_whole():
        return THEMES
    turn = turn_of(path)
    return () if turn % SHARE else (THEMES[turn // SHARE % len(THEMES)],)


def sign_in(seen: Visit, scene: Scene) -> None:
    """Give the browser the session of Root, who has a password so that no page asks for one."""
    name = settings.SESSION_COOKIE_NAME
    value = scene.client(scene.root).cookies[name].value
    seen.page.context.add_cookies([{"name": name, "value": value, "url": seen.address}])


def test_axe_finds_nothing_on_any_page(address: str, visit: Open) -> None:
    """Each page passes axe's rules, contrast among them."""
    del address
    scene = make_scene()
    scene.root.set_password(PASSWORD)
    scene.root.save()
    client = scene.client(scene.root)
    client.defaults["HTTP_HOST"] = "127.0.0.1"
    paths = [path for path, _text in whole_pages(scene, client)]
    found: dict[str, list[Any]] = {}

    for theme in THEMES:
        seen = visit(theme=theme)
        sign_in(seen, scene)
        for path in (one for one in paths if theme in themes_of(one)):
            seen.open(path)
            violations = Axe().run(seen.page).response["violations"]
            if violations:
                found[f"{theme} {path}"] = [
                    (one["id"], [node["html"][:120] for node in one["nodes"][:3]])
                    for one in violations
                ]

    assert paths
    assert not found, "\n".join(f"{path} {one}" for path, ones in found.items() for one in ones)


def test_the_keyboard_is_caught_nowhere(address: str, visit: Open) -> None:
    """By Tab alone one comes through lists and a queue, out at the end, and all the way back."""
    del address
    scene = make_scene()
    scene.root.set_password(PASSWORD)
    scene.root.save()
    seen = visit()
    sign_in(seen, scene)

    for path in ("/jobs/", "/queues/vision/"):
        seen.open(path)
        forwards, backwards = walk(seen.page, "Tab"), walk(seen.page, "Shift+Tab")
        assert "skip-link" in forwards[0], path
        assert len(forwards) >= FEWEST_STOPS, path
        assert forwards == backwards[::-1], path


def walk(page: Page, key: str) -> list[str]:
    """Press a key until nothing of the page has the focus, or it begins again; return the stops."""
    stops: list[str] = []
    while True:
        page.keyboard.press(key)
        stop = page.evaluate(FOCUSED)
        if stop is None or stop in stops[:1]:
            return stops
        assert stop not in stops, f"{key} goes in circles on {page.url}: {stops[-4:]} {stop}"
        stops.append(stop)
