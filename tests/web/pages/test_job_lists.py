"""The list of jobs: views of one's own, new rows, groups, columns, export, actions by filter."""

import csv
from collections.abc import Callable
from datetime import timedelta
from io import StringIO

import pytest
from django.test import Client

from controlplane.pages import jobs as job_pages
from scheduling.domain.queries.jobs import encode_cursor
from scheduling.models import Job
from tenants.models import AuditRow, SavedView, User
from tests.factories.demo import make_job
from tests.web.pages.conftest import Site

Browse = Callable[[User], Client]


def _exported(client: Client, query: str = "") -> list[dict[str, str]]:
    text = client.get(f"/jobs/export.csv?{query}").getvalue().decode()
    return list(csv.DictReader(StringIO(text, newline="")))


def test_view_is_a_tab_of_ones_own(site: Site, browse: Browse) -> None:
    """Filters that were saved are a tab with the same filters, for their owner alone."""
    bob = browse(site.people.bob)

    reply = bob.post("/jobs/views/", {"name": " Mine  waiting", "query": "user=me&state=waiting"})
    own = bob.get("/jobs/?state=waiting&user=me").context["views"]
    others = browse(site.people.alice).get("/jobs/").context["views"]

    assert reply.headers["Location"] == "/jobs/?state=waiting&user=me"
    assert [(view.name, view.query, is_current) for view, is_current in own] == [
        ("Mine waiting", "state=waiting&user=me", True)
    ]
    assert others == []


def test_view_keeps_only_filters_of_the_list(site: Site, browse: Browse) -> None:
    """What is no filter of the list, or says nothing, is not kept."""
    browse(site.people.bob).post(
        "/jobs/views/", {"name": "clean", "query": "evil=1&state=all&q=&queue=robots&after=x"}
    )

    assert SavedView.objects.get().query == "queue=robots"


def test_strangers_view_cannot_be_deleted(site: Site, browse: Browse) -> None:
    """A view of somebody else is not found; one's own goes."""
    bob = browse(site.people.bob)
    bob.post("/jobs/views/", {"name": "mine", "query": "user=me"})
    view = SavedView.objects.get()

    stranger = browse(site.people.alice).post("/jobs/views/", {"forget": str(view.id)})
    was_kept = SavedView.objects.exists()
    bob.post("/jobs/views/", {"forget": str(view.id)})

    assert (stranger.status_code, was_kept) == (404, True)
    assert not SavedView.objects.exists()


@pytest.mark.parametrize(
    ("name", "words"), [("", "Give the view a name"), ("x" * 41, "at most 40 characters")]
)
def test_unusable_name_of_a_view_is_told(site: Site, browse: Browse, name: str, words: str) -> None:
    """A name that is missing or too long is refused with the limit."""
    page = browse(site.people.bob).post(
        "/jobs/views/", {"name": name, "query": "user=me"}, follow=True
    )

    assert words in page.content.decode()
    assert not SavedView.objects.exists()


def test_twenty_first_view_is_refused(site: Site, browse: Browse) -> None:
    """Twenty views are the most; replacing one of them goes on working."""
    bob = browse(site.people.bob)
    for number in range(20):
        bob.post("/jobs/views/", {"name": f"view {number}", "query": "user=me"})

    page = bob.post("/jobs/views/", {"name": "one more", "query": "user=me"}, follow=True)
    bob.post("/jobs/views/", {"name": "view 7", "query": "state=failed"})

    assert "You have 20 views" in page.content.decode()
    assert SavedView.objects.count() == 20
    assert SavedView.objects.get(name="view 7").query == "state=failed"


def test_pill_counts_new_jobs_that_match(site: Site, browse: Browse) -> None:
    """The pill counts what came after the newest row, by the same filters and rights.

    Beside it stand the numbers of the tabs, which the page shows in place of its own.
    """
    client = browse(site.people.bob)
    newest = encode_cursor(site.bobs)
    empty = client.get(f"/jobs/newer/?than={newest}").content.decode()
    for number in range(2):
        later = site.now + timedelta(seconds=number + 1)
        make_job(site.robots, site.people.bob, f"new-{number}", later)
        make_job(site.mill, site.people.charlie, f"hidden-{number}", later)

    both = client.get(f"/jobs/newer/?than={newest}").content.decode()
    one = client.get(f"/jobs/newer/?than={newest}&q=new-1").content.decode()
    damaged = client.get("/jobs/newer/?than=nonsense")

    assert "pill" not in empty
    assert '<data data-count-of="waiting" value="1">' in empty
    assert '<data data-count-of="waiting" value="3">' in both
    assert "2 new</a>" in both
    assert "1 new</a>" in one
    assert 'href="/jobs/?q=new-1"' in one
    assert (damaged.status_code, "pill" in damaged.content.decode()) == (200, False)


def test_groups_hold_the_rows_of_the_page(site: Site, browse: Browse) -> None:
    """Grouped by user, rows stand under their owner, with a link to all of that owner's."""
    make_job(site.robots, site.people.alice, "alices", site.now)

    page = browse(site.people.bob).get("/jobs/?group=user")

    groups = {title: [job.name for job in rows] for title, _query, rows in page.context["groups"]}
    assert groups == {"alice": ["alices"], "bob": ["bobs-training"]}
    assert 'href="/jobs/?user=alice"' in page.content.decode()


def test_counters_are_left_out_where_they_would_mislead(site: Site, browse: Browse) -> None:
    """Counters know queues and phases; with a user or a text given no number is shown."""
    client = browse(site.people.bob)

    shown = [
        "badge-count" in client.get(path).content.decode()
        for path in ("/jobs/", "/jobs/?queue=robots", "/jobs/?user=me", "/jobs/?q=bob")
    ]

    assert shown == [True, True, False, False]


def test_hidden_columns_last(site: Site, browse: Browse) -> None:
    """Columns that are not chosen are hidden on the next visits; unknown ones are ignored."""
    client = browse(site.people.bob)
    shown = ["queue", "tasks", "gpus", "wait", "run", "reason", "nonsense"]

    client.post("/preferences/columns/", {"column": shown, "next": "/jobs/"})
    page = client.get("/jobs/")

    assert page.context["hidden_columns"] == ["user"]
    assert 'data-hidden="user"' in page.content.decode()


def test_density_lasts(site: Site, browse: Browse) -> None:
    """A chosen height of rows is there on the next page; an unknown one changes nothing."""
    del site
    client = Client()
    client.post("/preferences/density/", {"density": "nonsense"})
    unknown = dict(client.cookies.items()).get("terrace_density")
    client.post("/preferences/density/", {"density": "compact"})

    assert unknown is None or unknown.value == ""
    assert client.cookies["terrace_density"].value == "compact"


def test_export_holds_every_job_that_matches(
    site: Site, browse: Browse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All pages are in the file, by the filters and rights of the list, the newest first."""
    monkeypatch.setattr(job_pages, "LARGEST_PAGE", 2)
    for number in range(5):
        at = site.now - timedelta(minutes=number + 1)
        make_job(site.robots, site.people.bob, f"job-{number}", at)
    client = browse(site.people.bob)

    everything = [row["name"] for row in _exported(client)]
    narrowed = [row["name"] for row in _exported(client, "q=job-3")]

    assert everything == ["bobs-training", *(f"job-{number}" for number in range(5))]
    assert narrowed == ["job-3"]


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_export_runs_no_formula(site: Site, browse: Browse, start: str) -> None:
    """A text that a spreadsheet would take for a formula is told to be a text."""
    User.objects.filter(id=site.people.bob.id).update(username=f"{start}1+1")

    rows = _exported(browse(User.objects.get(id=site.people.bob.id)))

    assert [row["user"] for row in rows] == [f"'{start}1+1"]


def test_action_for_all_that_match_is_shown_first(site: Site, browse: Browse) -> None:
    """The preview names what is concerned and what is left out, and changes nothing."""
    make_job(site.robots, site.people.bob, "other", site.now)
    make_job(site.robots, site.people.bob, "over", site.now, phase="Completed")

    page = browse(site.people.bob).post(
        "/jobs/bulk/all/", {"action": "cancel", "query": "queue=robots"}
    )

    assert sorted(job.name for job in page.context["jobs"]) == ["bobs-training", "other"]
    assert (page.context["phases"], page.context["left_out"]) == ([("Pending", 2)], 1)
    assert set(Job.objects.values_list("phase", flat=True)) == {"Pending", "Completed"}


def test_confirmed_action_tells_how_it_went_for_each(site: Site, browse: Browse) -> None:
    """Exactly the jobs that were shown are changed, with the reason; a stranger's is refused."""
    later = make_job(site.robots, site.people.bob, "came-later", site.now)
    ids = f"{site.bobs.id} {site.charlies.id} nonsense"
    form = {"action": "cancel", "confirmed": "yes", "jobs": ids, "reason": "wrong data"}

    page = browse(site.people.bob).post("/jobs/bulk/all/", form)

    outcomes = {str(one.job_id): one.is_done for one in page.context["outcomes"]}
    assert outcomes == {str(site.bobs.id): True, str(site.charlies.id): False}
    assert "charlies-secret" not in page.content.decode()
    assert Job.objects.get(id=later.id).phase == "Pending"
    assert AuditRow.objects.get(action="job.cancel").reason == "wrong data"


@pytest.mark.parametrize(
    ("action", "names"),
    [
        ("cancel", ["aborted", "pending", "running"]),
        ("suspend", ["pending", "running"]),
        ("resume", ["aborted"]),
        ("retry", ["pending", "running"]),
    ],
)
def test_preview_leaves_out_what_an_action_cannot_change(
    site: Site, browse: Browse, action: str, names: list[str]
) -> None:
    """Each action is offered for the phases in which it changes something."""
    for phase in ("Pending", "Running", "Aborted", "Completed", "Terminating"):
        make_job(site.vision, site.people.alice, phase.lower(), site.now, phase=phase)

    page = browse(site.people.alice).post("/jobs/bulk/all/", {"action": action, "query": "user=me"})

    assert sorted(job.name for job in page.context["jobs"]) == names
