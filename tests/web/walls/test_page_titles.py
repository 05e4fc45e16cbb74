"""What every page says of itself: a title of its own, one heading, a language."""

from __future__ import annotations

import re
from collections import defaultdict

import pytest

from tests.web.walls.scene import make_scene
from tests.web.walls.whole_pages import whole_pages

TITLE = re.compile(r"<title>(.*?)</title>", re.DOTALL)
FEWEST = 50
FORM_OF_ANOTHER = "/clone/"
"""The form of a new job, filled in."""


@pytest.mark.django_db
def test_every_page_has_a_title_of_its_own_and_one_heading() -> None:
    """Tabs of a browser can be told apart, and a screen reader finds where a page begins."""
    scene = make_scene()
    scene.root.set_password("correct horse battery staple")  # whoever has none is asked for one
    scene.root.save()
    by_title: dict[str, list[str]] = defaultdict(list)
    wrong: list[str] = []

    for path, text in whole_pages(scene, scene.client(scene.root)):
        found = TITLE.search(text)
        title = " ".join(found[1].split()) if found else ""
        if not path.endswith(FORM_OF_ANOTHER):
            by_title[title].append(path.partition("?")[0])
        headings = len(re.findall(r"<h1[ >]", text))
        if headings != 1 or '<html lang="' not in text or not title.removesuffix("· Terrace"):
            wrong.append(f"{path}: {headings} headings, title {title!r}")

    twice = {title: sorted(set(them)) for title, them in by_title.items() if len(set(them)) > 1}
    assert (wrong, twice) == ([], {})
    assert len(by_title) >= FEWEST
