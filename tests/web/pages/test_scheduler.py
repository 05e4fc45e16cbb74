"""The scheduler's page and configuration: checked, saved, reverted, in force at the next cycle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from django.test import Client

from scheduling.domain import scheduler_configs
from scheduling.domain.clock import database_now
from scheduling.engine.config import DEFAULT_CONFIG, DEFAULT_OFF, parse_config
from scheduling.engine.types import Config
from scheduling.models import Cluster, CycleRecord, Job, SchedulerConfig
from tenants.models import AuditRow, User
from tests.web.pages.conftest import Site

Browse = Callable[[User], Client]
PATH = "/cluster/scheduler/"
GOOD = 'actions: "enqueue, allocate, backfill"\ntiers:\n- plugins:\n  - name: gang\n'
BROKEN = 'actions: "enqueue, dance"\ntiers:\n- plugins:\n  - name: gong\n'


def version(site: Site) -> int:
    return Cluster.objects.get(id=site.cluster.id).version


def post(client: Client, site: Site, text: str, **more: str) -> int:
    data = {"text": text, "version": str(version(site)), "action": "save", **more}
    return client.post(PATH, data).status_code


def in_force(site: Site) -> str:
    return Cluster.objects.get(id=site.cluster.id).scheduler_config


def test_only_root_sees_and_edits_it(site: Site, browse: Browse) -> None:
    """The scheduler is the installation's: whoever may not read its settings finds no page."""
    found = {user.username: browse(user).get(PATH).status_code for user in site.people.everyone}

    assert found == {"root": 200, "alice": 404, "bob": 404, "charlie": 404}
    assert post(browse(site.people.alice), site, GOOD) == 404
    assert in_force(site) == ""


def test_the_default_is_changed_from_a_copy(site: Site, browse: Browse) -> None:
    """A link fills the field with it; what is in force already is in the field anyway."""
    client = browse(site.people.root)
    empty, copy = client.get(PATH), client.get(PATH, {"copy": ""})
    post(client, site, GOOD)
    own = client.get(PATH, {"copy": ""})

    assert "Change a copy of it" in empty.content.decode()
    assert [one.context["text"] for one in (empty, copy, own)] == [
        "",
        scheduler_configs.as_text(DEFAULT_CONFIG),
        GOOD,
    ]
    assert "Change a copy of it" not in own.content.decode()


def test_a_saved_configuration_is_in_force_and_on_record(site: Site, browse: Browse) -> None:
    """The row, a version and an audit row say the same."""
    status = post(browse(site.people.root), site, GOOD, reason="no eviction today")

    assert status == 302
    assert in_force(site) == GOOD
    row = SchedulerConfig.objects.get()
    assert (row.number, row.text, row.reason) == (1, GOOD, "no eviction today")
    audit = AuditRow.objects.get(action="cluster.scheduler_config")
    assert audit.after == {"text": GOOD, "number": 1}


def test_problems_are_shown_at_their_place_and_nothing_is_saved(site: Site, browse: Browse) -> None:
    """Every problem at once, each with its path and what is known there; the text stays typed."""
    client = browse(site.people.root)

    page = client.post(PATH, {"text": BROKEN, "version": version(site), "action": "save"})

    text = page.content.decode()
    assert page.status_code == 422
    assert "actions[1]" in text
    assert "There is no action “dance”. There are: allocate, backfill" in text
    assert "tiers[0].plugins[0].name" in text
    assert "name: gong" in text
    assert in_force(site) == ""
    assert not SchedulerConfig.objects.exists()


def test_a_check_says_what_the_next_cycle_would_do(site: Site, browse: Browse) -> None:
    """Without an action that places, jobs wait that would start; the API says the same."""
    client = browse(site.people.root)
    idle = 'actions: "enqueue"\ntiers:\n- plugins:\n  - name: gang\n'

    page = client.post(PATH, {"text": idle, "version": version(site), "action": "check"})
    same = client.post(PATH, {"text": "", "version": version(site), "action": "check"})
    address = f"/api/v1/clusters/{site.cluster.id}/scheduler-config"
    told = client.put(
        address,
        {"text": idle, "dry_run": True},
        headers={"If-Match": client.get(address).headers["ETag"]},
        content_type="application/json",
    )

    missed = [(one.job, one.tasks) for one in page.context["effect"]["preview"].missed]
    assert missed == [("charlies-secret", 2), ("bobs-training", 2)]
    whole, _mark, shown_at_the_anchor = page.content.decode().partition('id="configuration"')
    assert "Would not start" in shown_at_the_anchor
    assert "In force: the default" in whole
    assert 'action="?#configuration"' in shown_at_the_anchor
    assert same.context["effect"]["preview"].missed == ()
    assert [one["job"] for one in told.json()["effect"]["missed"]] == [name for name, _ in missed]
    assert in_force(site) == ""


def test_check_saves_nothing(site: Site, browse: Browse) -> None:
    """Check says that it would do, and changes nothing."""
    client = browse(site.people.root)

    page = client.post(PATH, {"text": GOOD, "version": version(site), "action": "check"})

    assert "No problem found. It is not saved yet." in page.content.decode()
    assert in_force(site) == ""


def test_what_changes_nothing_is_told_and_saved(site: Site, browse: Browse) -> None:
    """A slip in an argument's name: the check and the page in force say so, as does the API."""
    client = browse(site.people.root)
    slip = GOOD + "    arguments: {gang.wholegangs: true}\n"
    place = "tiers[0].plugins[0].arguments.gang.wholegangs"

    checked = client.post(PATH, {"text": slip, "version": version(site), "action": "check"})
    post(client, site, slip)
    saved = client.get(PATH)
    document = client.get(f"/api/v1/clusters/{site.cluster.id}/scheduler-config").json()

    for page in (checked, saved):
        assert "Some of the text changes nothing" in page.content.decode()
        assert place in page.content.decode()
    assert [(one["field"], one["code"]) for one in document["notes"]] == [
        (f"text.{place}", "config_argument_unknown")
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            GOOD.replace("gang\n", "overcommit\n    arguments: {overcommit-factor: much}\n"),
            "tiers[0].plugins[0].arguments.overcommit-factor</span>: “much” is not a number.",
        ),
        ("actions: [allocate\ntiers:", "line 2, column 6</span>: This is not YAML"),
        ("#" * 200_000, "200000 characters; 100000 are possible."),
    ],
    ids=["value", "yaml", "too long"],
)
def test_what_is_wrong_is_told_in_words(site: Site, browse: Browse, text: str, told: str) -> None:
    """A value of the wrong kind, no YAML, far too much: each is named and nothing is saved."""
    client = browse(site.people.root)

    page = client.post(PATH, {"text": text, "version": version(site), "action": "save"})

    assert page.status_code == 422
    assert told in page.content.decode()
    assert in_force(site) == ""


def test_two_megabytes_are_refused_in_words(site: Site, browse: Browse) -> None:
    """What is too large to be read at all is answered with a page that says so."""
    page = browse(site.people.root).post(PATH, {"text": "#" * 2_000_000, "version": "1"})

    assert page.status_code == 413
    assert "A form takes 1.0\xa0MB" in page.content.decode()


def test_a_conflict_shows_both(site: Site, browse: Browse) -> None:
    """Who comes second sees what is in force above what they typed, and overwrites nothing."""
    client = browse(site.people.root)
    seen = version(site)
    post(client, site, GOOD)
    mine = GOOD.replace("backfill", "reclaim")

    page = client.post(PATH, {"text": mine, "version": seen, "action": "save"})

    text = page.content.decode()
    assert page.status_code == 409
    assert "enqueue, allocate, backfill" in text
    assert "enqueue, allocate, reclaim" in text
    assert in_force(site) == GOOD


def test_an_earlier_version_is_put_in_force_again(site: Site, browse: Browse) -> None:
    """The empty text is the default; going back makes a new version."""
    client = browse(site.people.root)
    post(client, site, GOOD)

    assert post(client, site, "", reason="back") == 302

    assert in_force(site) == ""
    assert list(SchedulerConfig.objects.order_by("number").values_list("number", "text")) == [
        (1, GOOD),
        (2, ""),
    ]


def test_cycles_errors_and_jobs_left_out_are_shown(site: Site, browse: Browse) -> None:
    """The last hour's cost, the last errors, and the jobs that planning failed with."""
    at = database_now()
    for number, plan_ms in enumerate((1.0, 2.0, 300.0), start=1):
        CycleRecord.objects.create(
            cluster=site.cluster,
            number=number,
            epoch=1,
            started_at=at - timedelta(seconds=10 - number),
            snapshot_ms=1.0,
            plan_ms=plan_ms,
            apply_ms=1.0,
            binds=2,
            error="ValueError: odd" if number == 3 else "",
        )
    Job.objects.filter(id=site.bobs.id).update(quarantine_strikes=3)

    page = browse(site.people.root).get(PATH)

    text = page.content.decode()
    view = page.context["view"]
    assert (view.cost.p50_ms, view.cost.p99_ms, view.cost.binds) == (4.0, 302.0, 6)
    assert "ValueError: odd" in text
    assert site.bobs.name in text


def test_the_api_reads_checks_and_replaces(site: Site, browse: Browse) -> None:
    """The same through the API, with If-Match and a dry run."""
    client = browse(site.people.root)
    address = f"/api/v1/clusters/{site.cluster.id}/scheduler-config"
    first = client.get(address)
    tag = {"If-Match": first.headers["ETag"]}
    csrf = {"content_type": "application/json"}

    checked = client.put(address, {"text": GOOD, "dry_run": True}, headers=tag, **csrf)  # type: ignore[arg-type]
    broken = client.put(address, {"text": BROKEN}, headers=tag, **csrf)  # type: ignore[arg-type]
    saved = client.put(address, {"text": GOOD}, headers=tag, **csrf)  # type: ignore[arg-type]
    late = client.put(address, {"text": ""}, headers=tag, **csrf)  # type: ignore[arg-type]

    assert first.json()["is_default"] is True
    assert parse_config(first.json()["text"]).problems == ()
    assert (checked.status_code, checked.json()["is_default"]) == (200, True)
    assert broken.status_code == 422
    assert (saved.status_code, saved.json()["text"]) == (200, GOOD)
    assert late.status_code == 412
    items = client.get(f"{address}/versions").json()["items"]
    assert [(one["number"], one["author"]) for one in items] == [(1, "root")]


def test_tiers_of_the_network_are_saved_and_refused_by_line(site: Site, browse: Browse) -> None:
    """A name and a label on each line; what is wrong is told and what was typed stays."""
    client = browse(site.people.root)

    saved = client.post(
        PATH,
        {"action": "network", "tiers": "rack net/rack\nzone net/zone", "version": version(site)},
    )
    refused = client.post(
        PATH, {"action": "network", "tiers": "Rack x y\nzone", "version": version(site)}
    )

    text = refused.content.decode()
    assert saved.status_code == 302
    assert refused.status_code == 422
    assert "“Rack” is not a tier&#x27;s name" in text
    assert "“x y” is not the key of a label" in text
    assert "“” is not the key of a label" in text
    assert Cluster.objects.get(id=site.cluster.id).network_tiers == [
        {"name": "rack", "label": "net/rack"},
        {"name": "zone", "label": "net/zone"},
    ]
    assert AuditRow.objects.filter(action="cluster.network_tiers").count() == 1


def test_tiers_are_read_and_replaced_by_the_api(site: Site, browse: Browse) -> None:
    """With If-Match; a tier that stands twice is refused at its place."""
    client = browse(site.people.root)
    address = f"/api/v1/clusters/{site.cluster.id}/network-tiers"
    tag = {"If-Match": client.get(address).headers["ETag"]}
    tiers = [{"name": "rack", "label": "rack"}]

    twice = client.put(address, {"tiers": tiers * 2}, headers=tag, content_type="application/json")
    saved = client.put(address, {"tiers": tiers}, headers=tag, content_type="application/json")
    late = client.put(address, {"tiers": []}, headers=tag, content_type="application/json")

    assert twice.status_code == 422
    assert (saved.status_code, saved.json()) == (200, {"tiers": tiers})
    assert late.status_code == 412


def switched(config: Config) -> Config:
    """Return the configuration with what is off by default left out of the comparison."""
    tiers = tuple(
        tuple(replace(one, disabled=one.disabled - DEFAULT_OFF) for one in tier)
        for tier in config.tiers
    )
    return replace(config, tiers=tiers)


def test_the_default_is_written_as_text_that_reads_back() -> None:
    """What the page shows as the default is the default."""
    read = parse_config(scheduler_configs.as_text(DEFAULT_CONFIG))

    assert read.problems == ()
    assert read.config is not None
    assert switched(read.config) == switched(DEFAULT_CONFIG)


@pytest.mark.parametrize(
    ("text", "code"), [("x" * 100_001, "too_long"), ("[", "config_invalid_yaml")]
)
def test_a_text_that_cannot_be_read_has_a_code(text: str, code: str) -> None:
    """Too long or not YAML: one problem, at the text."""
    (problem,) = scheduler_configs.problems_of(text)

    assert problem.code == code
    assert problem.path.startswith("text")
