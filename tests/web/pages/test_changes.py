"""Change sets in the browser: planned, simulated, reviewed, applied, reverted by who may."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.conf import LazySettings
from django.test import Client
from django.utils import timezone

from scheduling.models import ChangeSet, Queue
from tenants.models import GrantRole, User
from tests.people import make_grant, make_user
from tests.web.pages.conftest import Site

Browse = Callable[[User], Client]
GPU = "nvidia.com/gpu"


def begin(client: Client, title: str = "Night shift") -> ChangeSet:
    """Begin a draft as a person does."""
    page = client.post("/changes/new/", {"title": title})
    return ChangeSet.objects.get(id=UUID(page.headers["Location"].split("/")[2]))


def typed(client: Client, row: ChangeSet, *names: str, **values: str) -> dict[str, Any]:
    """Return what the browser sends after queues were added and numbers typed."""
    query = "&".join(f"add={name}" for name in names)
    page = client.get(f"/changes/{row.id}/?{query}")
    form = page.context["form"]
    sent: dict[str, Any] = {
        "version": str(page.context["change"].version),
        "title": row.title,
        "reason": "quarter end",
        "queue": list(form.items),
    }
    for item in form.items.values():
        sent[f"c-{item.id}-name"] = item.queue
        sent[f"c-{item.id}-version"] = str(item.version)
        sent[f"c-{item.id}-base"] = item.base_json
        for key, one in item.inputs.items():
            sent[one.name] = values.get(f"{item.queue}.{key}", one.value)
    return sent


def planned(client: Client, *names: str, **values: str) -> ChangeSet:
    """Draft and check a change of some queues."""
    row = begin(client)
    sent = typed(client, row, *names, **values) | {"action": "check"}
    client.post(f"/changes/{row.id}/save/", sent)
    row.refresh_from_db()
    return row


def act(client: Client, row: ChangeSet, action: str, **more: str) -> Any:
    return client.post(f"/changes/{row.id}/act/", {"action": action, **more}, follow=True)


def second_root(site: Site) -> User:
    user = make_user("second")
    make_grant(user, GrantRole.PLATFORM_ADMIN, None)
    return user


def test_draft_to_revert(site: Site, browse: Browse) -> None:
    """Root plans two queues, sees the effect, applies it, and brings back what was."""
    client = browse(site.people.root)
    row = planned(
        client,
        "robots",
        "vision",
        **{"robots.weight": "5", "robots.max.nvidia.com/gpu": "4", "vision.policy": "fifo"},
    )
    validated = row.state

    act(client, row, "apply")
    robots, vision = (Queue.objects.get(name=name) for name in ("robots", "vision"))
    in_force = (robots.weight, robots.max, vision.policy)
    act(client, row, "revert", reason="no use")

    row.refresh_from_db()
    robots, vision = (Queue.objects.get(name=name) for name in ("robots", "vision"))
    assert validated == "validated"
    assert in_force == (5, {GPU: 4000}, "fifo")
    assert (robots.weight, robots.max, vision.policy) == (1, {}, "priority")
    assert row.state == "reverted"


def test_effect_of_what_is_typed_writes_nothing(site: Site, browse: Browse) -> None:
    """While typing the shares before and after are shown, and nothing is kept."""
    client = browse(site.people.root)
    row = begin(client)
    sent = typed(client, row, "robots", **{"robots.max.nvidia.com/gpu": "1"})

    page = client.post(f"/changes/{row.id}/effect/", sent, headers={"hx-request": "true"})

    assert "Deserved then" in page.content.decode()
    assert not row.items.exists()
    assert Queue.objects.get(name="robots").max == {}


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("weight", "many", "many"),
        ("weight", "0", "from 1 to 65535"),
        ("min.cpu", "-3", "-3"),
        ("min.nvidia.com/gpu", "9", "max"),
    ],
)
def test_what_is_wrong_stands_at_its_field(
    site: Site, browse: Browse, field: str, value: str, says: str
) -> None:
    """A number that cannot be, or that breaks a rule, is told where it was typed."""
    client = browse(site.people.root)
    row = begin(client)
    values = {f"robots.{field}": value, "robots.max.nvidia.com/gpu": "4"}
    sent = typed(client, row, "robots", **values) | {"action": "check"}

    page = client.post(f"/changes/{row.id}/save/", sent)

    item = page.context["form"].items[str(site.robots.id)]
    assert page.status_code == 422
    assert item.inputs[field].errors
    assert says in " ".join(item.inputs[field].errors).lower()
    row.refresh_from_db()
    assert row.state == "draft"


def test_rejected_policy_stands_at_its_field(site: Site, browse: Browse) -> None:
    """A policy that there is not is refused, not written."""
    client = browse(site.people.root)
    row = begin(client)
    sent = typed(client, row, "robots", **{"robots.policy": "lottery"}) | {"action": "check"}

    page = client.post(f"/changes/{row.id}/save/", sent)

    assert page.status_code == 422
    assert page.context["form"].items[str(site.robots.id)].inputs["policy"].errors


def test_queue_is_added_by_name(site: Site, browse: Browse) -> None:
    """What was typed is kept and the added queue has its fields; an unknown name is told."""
    client = browse(site.people.root)
    row = begin(client)
    sent = typed(client, row, "robots", **{"robots.weight": "4"}) | {"action": "add"}

    page = client.post(f"/changes/{row.id}/save/", sent | {"add": "mill"}, follow=True)
    row.refresh_from_db()
    again = typed(client, row) | {"action": "add", "add": "nowhere"}
    told = client.post(f"/changes/{row.id}/save/", again, follow=True).content.decode()

    assert [item.queue for item in page.context["form"].items.values()] == ["robots", "mill"]
    assert [item.queue_name for item in row.items.all()] == ["robots"]
    assert "no queue “nowhere”" in told


def test_review_by_a_second_person(site: Site, browse: Browse, settings: LazySettings) -> None:
    """The author is not offered to approve, the second person is; then it can be applied."""
    settings.TERRACE_CHANGE_REVIEW_GPUS = 0
    first, second = browse(site.people.root), browse(second_root(site))
    row = planned(first, "robots", **{"robots.weight": "5"})
    act(first, row, "ask_review")

    own = first.get(f"/changes/{row.id}/").content.decode()
    refused = first.post(f"/changes/{row.id}/act/", {"action": "approve"})
    others = second.get(f"/changes/{row.id}/").content.decode()
    act(second, row, "approve", comment="fine")
    act(first, row, "apply")

    row.refresh_from_db()
    assert ('value="approve"' in own, 'value="approve"' in others) == (False, True)
    assert refused.status_code == 403
    assert (row.state, row.review_comment) == ("applied", "fine")


def test_sent_back_says_why(site: Site, browse: Browse) -> None:
    """The author reads the comment and can go on editing."""
    first, second = browse(site.people.root), browse(second_root(site))
    row = planned(first, "robots", **{"robots.weight": "5"})
    act(first, row, "ask_review")
    act(second, row, "reject", comment="robots are on holiday")

    page = first.get(f"/changes/{row.id}/")

    assert "robots are on holiday" in page.content.decode()
    assert page.context["can_edit"]


def test_scheduled_in_the_viewers_zone_and_taken_back(site: Site, browse: Browse) -> None:
    """A time is kept and shown; taken away, nothing is due."""
    client = browse(site.people.root)
    row = planned(client, "robots", **{"robots.weight": "5"})
    at = (timezone.now() + timedelta(days=1)).replace(microsecond=0, tzinfo=None)

    act(client, row, "schedule", apply_at=at.isoformat())
    row.refresh_from_db()
    scheduled = (row.state, row.apply_at is not None)
    act(client, row, "unschedule")
    told = act(client, row, "schedule", apply_at="tomorrow").content.decode()

    row.refresh_from_db()
    assert scheduled == ("scheduled", True)
    assert (row.state, row.apply_at) == ("validated", None)
    assert "Choose a time in the future" in told


def test_conflict_is_settled_field_by_field(site: Site, browse: Browse) -> None:
    """What others changed is shown three ways, and what is chosen is kept."""
    client = browse(site.people.root)
    row = planned(client, "robots", **{"robots.weight": "5", "robots.priority": "2"})
    Queue.objects.filter(name="robots").update(weight=9, version=site.robots.version + 1)

    told = act(client, row, "apply")
    page = client.get(f"/changes/{row.id}/")
    lines = [(line.field, line.old, line.now, line.new) for line in page.context["conflicts"]]
    act(client, row, "rebase", **{f"keep-{site.robots.id}:weight": "theirs"})
    act(client, row, "validate")
    act(client, row, "apply")

    queue = Queue.objects.get(name="robots")
    assert "Somebody changed it meanwhile" in told.content.decode()
    assert lines == [("Weight", "1", "9", "5")]
    assert (queue.weight, queue.priority) == (9, 2)


def test_two_who_edit_one_draft(site: Site, browse: Browse) -> None:
    """The second of two saves of the same version is told, and overwrites nothing."""
    client = browse(site.people.root)
    row = begin(client)
    first = typed(client, row, "robots", **{"robots.weight": "4"})
    second = typed(client, row, "robots", **{"robots.weight": "8"})

    client.post(f"/changes/{row.id}/save/", first | {"action": "save"})
    told = client.post(f"/changes/{row.id}/save/", second | {"action": "save"}, follow=True)

    assert "Somebody changed it meanwhile" in told.content.decode()
    assert row.items.get().new == {"weight": 4}


def test_falsified_past_is_not_believed(site: Site, browse: Browse) -> None:
    """What the form says was seen does not become what a revert brings back."""
    client = browse(site.people.root)
    row = begin(client)
    sent = typed(client, row, "robots", **{"robots.weight": "5"})
    key = f"c-{site.robots.id}-base"
    sent[key] = sent[key].replace('"weight": 1', '"weight": 999')

    client.post(f"/changes/{row.id}/save/", sent | {"action": "check"})

    assert row.items.get().old["weight"] == 1


def test_damaged_form_is_told(site: Site, browse: Browse) -> None:
    """A form of which a part is missing changes nothing."""
    client = browse(site.people.root)
    row = begin(client)
    sent = typed(client, row, "robots", **{"robots.weight": "5"})
    statuses = []
    for base in ("", "{", '{"weight": 1}'):
        sent[f"c-{site.robots.id}-base"] = base
        statuses.append(client.post(f"/changes/{row.id}/save/", sent).status_code)

    assert statuses == [422, 422, 422]
    assert not row.items.exists()


def test_who_sees_and_may_do_what(site: Site, browse: Browse) -> None:
    """Alice, above robots, plans for it; Bob reads along without a button; Charlie sees nothing."""
    people = site.people
    row = planned(browse(people.alice), "robots", **{"robots.weight": "5"})
    path = f"/changes/{row.id}/"

    seen = {user.username: browse(user).get(path).status_code for user in people.everyone}
    steps = {
        user.username: browse(user).post(f"{path}act/", {"action": "apply"}).status_code
        for user in (people.bob, people.charlie)
    }
    saves = {
        user.username: browse(user).post(f"{path}save/", {"title": "Mine"}).status_code
        for user in (people.bob, people.charlie)
    }
    effects = {
        user.username: browse(user).get(f"{path}effect/").status_code
        for user in (people.bob, people.charlie)
    }
    bobs = browse(people.bob).get(path).content.decode()
    listed = {
        user.username: len(browse(user).get("/changes/").context["rows"])
        for user in people.everyone
    }

    assert seen == {"root": 200, "alice": 200, "bob": 200, "charlie": 404}
    assert steps == saves == {"bob": 403, "charlie": 404}
    assert effects == {"bob": 200, "charlie": 404}
    assert 'name="action"' not in bobs.split('id="main"')[1]
    assert listed == {"root": 1, "alice": 1, "bob": 1, "charlie": 0}
    assert Queue.objects.get(name="robots").weight == 1


def test_others_queue_cannot_be_added(site: Site, browse: Browse) -> None:
    """Alice is offered her tree's queues only, and a foreign id in the form is not found."""
    client = browse(site.people.alice)
    row = begin(client)
    sent = typed(client, row, "robots", "mill", "vision")
    offered = client.get(f"/changes/{row.id}/").context["names"]
    forged = typed(client, row, "robots", **{"robots.weight": "7"})
    forged = {
        key.replace(str(site.robots.id), str(site.mill.id)): value for key, value in forged.items()
    } | {"queue": [str(site.mill.id)], "action": "save"}

    answer = client.post(f"/changes/{row.id}/save/", forged)

    assert offered == ["robots"]
    assert sent["queue"] == [str(site.robots.id)]
    assert answer.status_code == 404
    assert not row.items.exists()


def test_researcher_cannot_begin(site: Site, browse: Browse) -> None:
    """Who manages no queue is refused by the role that it needs."""
    client = browse(site.people.bob)

    assert client.post("/changes/new/", {"title": "Mine"}).status_code == 403
    assert 'action="/changes/new/"' not in client.get("/changes/").content.decode()


def test_unknown_step_and_empty_title(site: Site, browse: Browse) -> None:
    """A step that there is not is refused; without a title nothing is begun."""
    client = browse(site.people.root)
    row = begin(client)

    answer = client.post(f"/changes/{row.id}/act/", {"action": "explode"})
    told = client.post("/changes/new/", {"title": " "}, follow=True).content.decode()

    assert answer.status_code == 422
    assert "From 1 to 120 characters" in told
    assert ChangeSet.objects.count() == 1


def test_draft_is_thrown_away(site: Site, browse: Browse) -> None:
    """A draft that nobody wants is gone from the list."""
    client = browse(site.people.root)
    row = begin(client)

    act(client, row, "discard")

    assert client.get("/changes/").context["rows"] == ()


@pytest.mark.parametrize("before", ["", "yesterday", "2026-11-21", "2099-01-01T00:00:00+00:00"])
def test_list_bears_any_cursor(site: Site, browse: Browse, before: str) -> None:
    """A damaged cursor shows the first page."""
    client = browse(site.people.root)
    row = begin(client)

    page = client.get("/changes/", {"before": before, "state": "nonsense"})

    assert [one.id for one in page.context["rows"]] == [row.id]


def test_tree_edits_are_kept_as_a_change_set(site: Site, browse: Browse) -> None:
    """From the tree, edits become a draft by a button, and nothing is applied."""
    client = browse(site.people.root)
    form = {
        "resource": GPU,
        "queue": [str(site.robots.id)],
        f"q-{site.robots.id}-version": str(site.robots.version),
        f"q-{site.robots.id}-base": '{"weight": 1, "min": {}, "max": {}}',
        f"q-{site.robots.id}-weight": "5",
        f"q-{site.robots.id}-min": "",
        f"q-{site.robots.id}-max": "",
    }

    page = client.post("/queues/edit/", form | {"action": "keep"})

    row = ChangeSet.objects.get()
    assert page.headers["Location"] == f"/changes/{row.id}/"
    assert (row.title, row.items.get().new) == ("Shares of robots", {"weight": 5})
    assert Queue.objects.get(name="robots").weight == 1
