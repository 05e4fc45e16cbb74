"""Live fragments render alone, equal what a fresh page holds, and are 404 for strangers."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from django.conf import settings
from django.template.loader import render_to_string
from django.test import Client

from controlplane.pages.fragments import FRAGMENTS
from tenants.domain.errors import NotFound
from tenants.models import User
from tests.web.pages.conftest import Site

Browse = Callable[[User], Client]
OF_A_JOB = sorted(name for name in FRAGMENTS if name.startswith("job_"))


def _object_id(site: Site, name: str, user: User) -> str:
    if name in {"queue_rows", "queue_chart"}:
        return str(site.cluster.id)
    ids = SimpleNamespace(
        job=site.bobs.id,
        my=user.id,
        cluster=site.cluster.id,
        queue=site.robots.id,
        node=site.node.id,
    )
    return str(getattr(ids, name.partition("_")[0]))


@pytest.mark.parametrize("name", sorted(FRAGMENTS))
def test_fragment_renders_without_a_request(site: Site, name: str) -> None:
    """Every fragment's loader and template give HTML for the one who may see it."""
    user = site.people.bob
    actor = site.people.actor(user)
    fragment = FRAGMENTS[name]

    context = fragment.load(actor, _object_id(site, name, user), "")
    html = render_to_string(fragment.template, {"actor": actor, **context})

    assert html.strip()


@pytest.mark.parametrize("name", OF_A_JOB)
def test_fragment_of_a_job_is_hidden_from_strangers(site: Site, name: str) -> None:
    """A loader finds no job for a person of another tenant."""
    actor = site.people.actor(site.people.charlie)

    with pytest.raises(NotFound):
        FRAGMENTS[name].load(actor, str(site.bobs.id), "")


@pytest.mark.parametrize("name", ["queue_share", "queue_jobs", "queue_facts"])
def test_fragment_of_a_queue_is_hidden_from_strangers(site: Site, name: str) -> None:
    """A loader finds no queue of another tenant."""
    actor = site.people.actor(site.people.charlie)

    with pytest.raises(NotFound):
        FRAGMENTS[name].load(actor, str(site.robots.id), "")


def test_fragment_of_a_node_shows_no_job_of_others(site: Site) -> None:
    """Everybody with a grant sees a node, and of what runs there only what they may see."""
    fragment = FRAGMENTS["node_body"]
    pages = {
        user.username: render_to_string(
            fragment.template,
            fragment.load(site.people.actor(user), str(site.node.id), ""),
        )
        for user in (site.people.bob, site.people.charlie)
    }

    assert "charlies-secret" not in pages["bob"]
    assert "bobs-training" not in pages["charlie"]
    with pytest.raises(NotFound):
        fragment.load(site.people.actor(site.people.bob), str(site.robots.id), "")


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("node_body", "/cluster/nodes/gpu-01/"),
        ("queue_share", "/queues/robots/"),
        ("queue_jobs", "/queues/robots/"),
        ("queue_facts", "/queues/robots/"),
    ],
)
def test_fragment_of_a_place_is_what_the_page_holds(
    site: Site, browse: Browse, name: str, path: str
) -> None:
    """The live regions of node and queue hold exactly what a live update would bring."""
    user = site.people.bob
    fragment = FRAGMENTS[name]
    context = fragment.load(site.people.actor(user), _object_id(site, name, user), "")
    alone = render_to_string(fragment.template, {"actor": site.people.actor(user), **context})

    page = browse(user).get(path).content.decode()

    assert f'data-live-fragment="{name}"' in page
    assert _without_times(alone) in _without_times(page)


def test_own_jobs_are_ones_own(site: Site) -> None:
    """Nobody may follow another person's work, Root neither."""
    actor = site.people.actor(site.people.root)

    with pytest.raises(NotFound):
        FRAGMENTS["my_jobs"].load(actor, str(site.people.bob.id), "")


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("job_header", "/jobs/{id}/"),
        ("job_tasks", "/jobs/{id}/tasks/"),
        ("job_history", "/jobs/{id}/events/"),
        ("job_timeline", "/jobs/{id}/timeline/"),
    ],
)
def test_fragment_is_what_the_page_holds(site: Site, browse: Browse, name: str, path: str) -> None:
    """The page's live region holds exactly what a live update would bring."""
    actor = site.people.actor(site.people.bob)
    fragment = FRAGMENTS[name]
    context = fragment.load(actor, str(site.bobs.id), "")
    alone = render_to_string(fragment.template, {"actor": actor, **context})

    page = browse(site.people.bob).get(path.format(id=site.bobs.id)).content.decode()

    assert f'data-live-fragment="{name}"' in page
    assert _without_times(alone) in _without_times(page)


def _without_times(html: str) -> str:
    """Leave out whitespace, and digits since a second may pass between two renderings."""
    return "".join(letter for letter in html if not letter.isspace() and not letter.isdigit())


def test_each_live_region_of_a_template_has_a_fragment() -> None:
    """What templates name as live fragments is in FRAGMENTS, and the other way round."""
    import re

    root = Path(settings.BASE_DIR) / "templates"
    named = {
        name
        for path in root.rglob("*.html")
        for name in re.findall(r'data-live-fragment="([a-z_]+)"', path.read_text(encoding="utf-8"))
    }

    assert named == set(FRAGMENTS)
