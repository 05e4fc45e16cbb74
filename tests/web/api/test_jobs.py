"""Jobs by the API: lists, submissions in every form, changes, actions, batches."""

from typing import Any

import pytest
import yaml

from scheduling.models import Job
from scheduling.models.job import JobPhase
from tenants.models import AuditRow, GrantRole, IdempotencyKey
from tests.factories.demo import make_job
from tests.web.api.conftest import As, Site

pytestmark = pytest.mark.django_db
JOBS = "/api/v1/jobs"

MANIFEST = """
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: from-volcano}
spec:
  minAvailable: 1
  queue: robots
  tasks:
    - replicas: 1
      name: main
      template:
        spec:
          containers:
            - {name: main, image: busybox, command: [sleep, "1"]}
"""


def test_each_person_lists_what_they_may_see(site: Site, as_user: As) -> None:
    """The list is cut to the reader's units."""
    people = site.people

    seen = {
        user.username: {job["name"] for job in as_user(user).get(JOBS).json()["items"]}
        for user in people.everyone
    }

    assert seen == {
        "root": {"bobs-training", "charlies-secret"},
        "alice": {"bobs-training"},
        "bob": {"bobs-training"},
        "charlie": {"charlies-secret"},
    }


def test_pages_give_every_job_once(site: Site, as_user: As) -> None:
    """Following the cursors meets each job once, the newest first."""
    for n in range(4):
        make_job(site.robots, site.people.bob, f"more-{n}", site.bobs.created_at)
    client = as_user(site.people.bob)

    names: list[str] = []
    after: str | None = ""
    while after is not None:
        page = client.get(JOBS, {"limit": "2", "after": after}).json()
        names += [job["name"] for job in page["items"]]
        after = page["next"]

    assert sorted(names) == ["bobs-training", "more-0", "more-1", "more-2", "more-3"]


@pytest.mark.parametrize("rows", [1, 3])
def test_list_costs_the_same_for_more_rows(
    rows: int, site: Site, as_user: As, django_assert_num_queries: Any
) -> None:
    """Session, user, grants, the units that they reach, and one query for the rows."""
    for n in range(rows - 1):
        make_job(site.robots, site.people.bob, f"more-{n}", site.bobs.created_at)
    client = as_user(site.people.bob)

    with django_assert_num_queries(5):
        reply = client.get(JOBS)

    assert len(reply.json()["items"]) == rows


@pytest.mark.parametrize(
    "query", [{"after": "x"}, {"limit": "0"}, {"limit": "501"}, {"limit": "a"}, {"tab": "no"}]
)
def test_bad_query_is_named(query: dict[str, str], site: Site, as_user: As) -> None:
    """The reply names the parameter that cannot be used."""
    reply = as_user(site.people.bob).get(JOBS, query)

    assert reply.status_code == 422
    assert [one["field"] for one in reply.json()["errors"]] == list(query)


def test_submission_by_json_makes_a_job(
    site: Site, as_user: As, document: dict[str, object]
) -> None:
    """201, an address, and a job with its audit row."""
    reply = as_user(site.people.bob).post(JOBS, document, format="json")

    assert reply.status_code == 201, reply.json()
    job = Job.objects.get(name="train")
    assert reply["Location"] == f"{JOBS}/{job.id}"
    assert (job.owner, job.queue, job.tasks.count()) == (site.people.bob, site.robots, 2)
    row = AuditRow.objects.get(action="job.create", subject_id=str(job.id))
    assert row.request_id == reply["X-Request-ID"]


@pytest.mark.parametrize("form", ["plain", "volcano"])
def test_submission_by_yaml_makes_the_same_kind_of_job(
    form: str, site: Site, as_user: As, document: dict[str, object]
) -> None:
    """YAML is taken as the plain representation and as a Volcano manifest."""
    text = MANIFEST if form == "volcano" else yaml.safe_dump(document)

    reply = as_user(site.people.bob).generic("POST", JOBS, text, content_type="application/yaml")

    assert reply.status_code == 201, reply.json()
    assert reply.json()["name"] == ("from-volcano" if form == "volcano" else "train")


def test_wrong_fields_are_all_named(site: Site, as_user: As, document: dict[str, object]) -> None:
    """Every problem comes at once, with its place, code and words; nothing is made."""
    document["min_available"] = 7
    document["nmae"] = "x"

    reply = as_user(site.people.bob).post(JOBS, document, format="json")

    errors = {(one["field"], one["code"]) for one in reply.json()["errors"]}
    assert reply.status_code == 422
    assert errors >= {("nmae", "unknown_field")}
    assert all(one["message"] for one in reply.json()["errors"])
    assert not Job.objects.filter(name="train").exists()


def test_foreign_queue_reads_as_missing(
    site: Site, as_user: As, document: dict[str, object]
) -> None:
    """A queue of another tenant is no queue."""
    document["queue"] = "mill"

    reply = as_user(site.people.bob).post(JOBS, document, format="json")

    assert [(one["field"], one["code"]) for one in reply.json()["errors"]] == [
        ("queue", "queue_missing")
    ]


def test_viewer_of_all_may_not_submit(site: Site, as_user: As, document: dict[str, object]) -> None:
    """Charlie of another tenant and an anonymous role get no job in; Alice does."""
    statuses = {
        user.username: as_user(user).post(JOBS, document, format="json").status_code
        for user in (site.people.charlie, site.people.alice)
    }

    assert statuses == {"charlie": 422, "alice": 201}


def test_dry_run_says_valid_and_fits_and_makes_nothing(
    site: Site, as_user: As, document: dict[str, object]
) -> None:
    """A dry run of a job that fits says so, with the ladder; no job is made."""
    reply = as_user(site.people.bob).post(f"{JOBS}?dry_run=1", document, format="json")

    told = reply.json()
    assert (reply.status_code, told["valid"], told["fits"]) == (200, True, True), told
    assert not Job.objects.filter(name="train").exists()


def test_dry_run_says_why_it_does_not_fit(
    site: Site, as_user: As, document: dict[str, Any]
) -> None:
    """More GPUs than any node has: valid, does not fit, and the headline says why."""
    document["roles"][0]["gpu"] = 64

    told = as_user(site.people.bob).post(f"{JOBS}?dry_run=1", document, format="json").json()

    assert (told["valid"], told["fits"]) == (True, False)
    assert told["fit"]["headline"]["message"]


def test_dry_run_of_nonsense_lists_the_errors(site: Site, as_user: As) -> None:
    """An invalid job is no error of the request when one only asks."""
    reply = as_user(site.people.bob).post(f"{JOBS}?dry_run=1", {"name": "x"}, format="json")

    assert (reply.status_code, reply.json()["valid"], reply.json()["fits"]) == (200, False, None)
    assert reply.json()["errors"]


def test_repeated_post_is_answered_and_not_repeated(
    site: Site, as_user: As, document: dict[str, object]
) -> None:
    """The same key and body give the same reply; another body is refused."""
    client = as_user(site.people.bob)

    first = client.post(JOBS, document, format="json", headers={"Idempotency-Key": "k1"})
    again = client.post(JOBS, document, format="json", headers={"Idempotency-Key": "k1"})
    document["name"] = "other"
    other = client.post(JOBS, document, format="json", headers={"Idempotency-Key": "k1"})

    assert (first.status_code, again.status_code, other.status_code) == (201, 201, 422)
    assert first.json() == again.json()
    assert again["Idempotency-Replayed"] == "true"
    assert Job.objects.filter(owner=site.people.bob).count() == 2


def test_body_beyond_the_limit_is_refused_unread(
    site: Site, as_user: As, document: dict[str, object]
) -> None:
    """1 MiB is read, more is not; a batch takes 5 MiB."""
    client = as_user(site.people.bob)
    padding = {"annotations": {"x": "y" * (1024 * 1024)}}

    one = client.post(JOBS, document | padding, format="json")
    batch = client.post("/api/v1/jobs:batch", {"jobs": [document | padding]}, format="json")

    assert (one.status_code, one.json()["code"]) == (413, "body_too_large")
    assert batch.status_code == 200


def test_detail_has_tag_roles_and_spec(site: Site, as_user: As) -> None:
    """One job comes with its entity tag, so that it can be changed safely."""
    reply = as_user(site.people.bob).get(f"{JOBS}/{site.bobs.id}")

    assert reply.json()["id"] == str(site.bobs.id)
    assert reply["ETag"] == f'"v{site.bobs.version}"'


def test_values_of_variables_are_hidden_from_viewers(
    site: Site, as_user: As, document: dict[str, object]
) -> None:
    """Bob reads his variables; one who may only look sees their names, in every form."""
    from tests.people import make_grant, make_user

    viewer = make_user("viewer")
    make_grant(viewer, GrantRole.VIEWER, site.people.lab)
    made = as_user(site.people.bob).post(JOBS, document, format="json").json()
    addresses = [f"{JOBS}/{made['id']}", f"{JOBS}/{made['id']}/manifest"]

    own = [as_user(site.people.bob).get(one).content.decode() for one in addresses]
    others = [as_user(viewer).get(one).content.decode() for one in addresses]

    assert all("very-secret" in one for one in own)
    assert not any("very-secret" in one for one in others)
    assert all("API_KEY" in one for one in others)


def test_suspend_resume_and_cancel(site: Site, as_user: As, document: dict[str, object]) -> None:
    """The actions are wishes that the job's phase shows."""
    client = as_user(site.people.bob)
    job = client.post(JOBS, document, format="json").json()

    phases = [
        client.post(f"{JOBS}/{job['id']}/{act}", {"reason": "test"}, format="json").json()["phase"]
        for act in ("suspend", "resume", "cancel")
    ]

    assert phases[0] in {JobPhase.ABORTING, JobPhase.ABORTED}
    assert phases[2] in {JobPhase.TERMINATING, JobPhase.TERMINATED}
    reasons = AuditRow.objects.filter(subject_id=job["id"]).values_list("action", "reason")
    assert ("job.cancel", "test") in set(reasons)


def test_stranger_cannot_cancel(site: Site, as_user: As) -> None:
    """Charlie does not see Bob's job, so there is nothing to cancel."""
    reply = as_user(site.people.charlie).post(f"{JOBS}/{site.bobs.id}/cancel", {}, format="json")

    assert reply.status_code == 404


def test_change_under_an_old_version_is_refused(
    site: Site, as_user: As, document: dict[str, object]
) -> None:
    """With If-Match a change is made to what was seen, or not at all."""
    client = as_user(site.people.bob)
    made = client.post(JOBS, document, format="json")
    address = made["Location"]
    tag = client.get(address)["ETag"]

    first = client.patch(
        address, {"replicas": {"worker": 3}}, format="json", headers={"If-Match": tag}
    )
    second = client.patch(
        address, {"replicas": {"worker": 4}}, format="json", headers={"If-Match": tag}
    )

    assert (first.status_code, second.status_code) == (200, 412), first.json()
    assert second.json()["code"] == "version_conflict"
    assert client.get(address).json()["tasks"]["total"] == 3


def test_batch_takes_each_job_by_itself(
    site: Site, as_user: As, document: dict[str, object]
) -> None:
    """A wrong item does not keep the others back, and its errors stand beside its index."""
    wrong = {**document, "queue": "mill"}

    reply = as_user(site.people.bob).post(
        "/api/v1/jobs:batch", {"jobs": [document, wrong]}, format="json"
    )

    told = reply.json()
    assert (told["done"], told["refused"]) == (1, 1)
    assert told["results"][1]["error"]["errors"][0]["code"] == "queue_missing"


def test_whole_batch_is_refused_as_one(
    site: Site, as_user: As, document: dict[str, object]
) -> None:
    """With `whole`, the good items are refused for the wrong ones, and say so."""
    wrong = {**document, "queue": "mill"}

    reply = as_user(site.people.bob).post(
        "/api/v1/jobs:batch", {"jobs": [document, wrong], "whole": True}, format="json"
    )

    told = reply.json()
    assert (told["done"], told["refused"]) == (0, 2)
    assert told["results"][0]["error"]["code"] == "batch_not_whole"


def test_batch_of_actions_says_how_each_ended(site: Site, as_user: As) -> None:
    """Cancelling own and foreign jobs does the one and hides the other."""
    ids = [str(site.bobs.id), str(site.charlies.id)]

    told = (
        as_user(site.people.bob)
        .post("/api/v1/jobs:batch", {"action": "cancel", "ids": ids}, format="json")
        .json()
    )

    assert [one["error"] and one["error"]["code"] for one in told["results"]] == [
        None,
        "not_found",
    ]


def test_key_of_a_refused_request_can_be_used_again(
    site: Site, as_user: As, document: dict[str, object]
) -> None:
    """A refusal leaves nothing behind, so the corrected request may carry the same key."""
    client = as_user(site.people.bob)
    headers = {"Idempotency-Key": "k2"}

    refused = client.post(JOBS, {**document, "queue": "no"}, format="json", headers=headers)
    accepted = client.post(JOBS, document, format="json", headers=headers)

    assert (refused.status_code, accepted.status_code) == (422, 201)
    assert IdempotencyKey.objects.count() == 1


@pytest.mark.parametrize("part", ["tasks", "attempts", "history", "metrics", "usage", "files"])
def test_parts_of_a_job_are_listed(part: str, site: Site, as_user: As) -> None:
    """Each part is a page with items and the cursor of the next."""
    reply = as_user(site.people.bob).get(f"{JOBS}/{site.bobs.id}/{part}")

    assert reply.status_code == 200, reply.json()
    assert set(reply.json()) == {"items", "next"}


def test_explain_names_the_headline(site: Site, as_user: As) -> None:
    """A job that waits is told why, rung by rung."""
    told = as_user(site.people.bob).get(f"{JOBS}/{site.bobs.id}/explain").json()

    assert told["is_waiting"] is (site.bobs.phase == JobPhase.PENDING)
