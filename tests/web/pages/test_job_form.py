"""The job form: one validation for form and YAML, errors at the field, nothing lost between."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import yaml
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from controlplane.templatetags.terrace_forecast import about
from scheduling.domain.clock import database_now
from scheduling.models import Job, JobFile, StartForecast
from tenants.models import User
from tests.factories.demo import make_job
from tests.web.pages.conftest import Site

Browse = Callable[[User], Client]

FORM = {
    "mode": "form",
    "to": "submit",
    "name": "train",
    "queue": "robots",
    "kind": "training",
    "plugins": ["env", "svc"],
    "roles-0-name": "ps",
    "roles-0-replicas": "1",
    "roles-0-cpu": "500m",
    "roles-0-memory": "1Gi",
    "roles-0-shell": "/bin/sh",
    "roles-0-command": "python ps.py",
    "roles-1-name": "worker",
    "roles-1-replicas": "4",
    "roles-1-min_available": "2",
    "roles-1-cpu": "2",
    "roles-1-memory": "4Gi",
    "roles-1-gpu": "1",
    "roles-1-shell": "none",
    "roles-1-command": "python worker.py --name 'two words'",
    "roles-1-env": "EPOCHS=10\nEMPTY=",
    "roles-1-policies-0-events": "PodFailed",
    "roles-1-policies-0-action": "RestartTask",
    "policies-0-events": "PodEvicted",
    "policies-0-action": "RestartJob",
    "policies-0-timeout": "10m",
}


def test_form_submits_a_job_of_two_roles(site: Site, browse: Browse) -> None:
    """A form becomes one job with its roles, amounts, command, variables and policies."""
    reply = browse(site.people.bob).post("/jobs/new/", FORM)

    job = Job.objects.get(name="train")
    ps, worker = job.spec["roles"]
    assert reply.headers["Location"] == f"/jobs/{job.id}/"
    assert (ps["cpu_milli"], ps["command"]) == (500, ["/bin/sh", "-c", "python ps.py"])
    assert worker["command"] == ["python", "worker.py", "--name", "two words"]
    assert worker["env"] == {"EPOCHS": "10", "EMPTY": ""}
    assert (worker["gpu_milli"], worker["min_available"]) == (1000, 2)
    assert worker["policies"][0]["action"] == "RestartTask"
    assert job.spec["policies"][0]["timeout_seconds"] == 600
    assert job.min_available == 3
    assert job.owner == site.people.bob


def test_problem_stands_at_its_field(site: Site, browse: Browse) -> None:
    """A wrong number is told at its field, what was typed is kept, and nothing is made."""
    form = {**FORM, "roles-1-min_available": "9", "name": "Not Valid"}

    page = browse(site.people.bob).post("/jobs/new/", form)

    errors = page.context["form"].errors
    text = page.content.decode()
    assert page.status_code == 422
    assert set(errors) == {"name", "roles-1-min_available"}
    assert 'aria-describedby="roles-1-min_available-error"' in text
    assert 'value="Not Valid"' in text
    assert not Job.objects.filter(queue=site.robots).exclude(id=site.bobs.id).exists()


def test_taken_name_is_told_at_the_name(site: Site, browse: Browse) -> None:
    """The name of a live job of the same unit is refused at the name."""
    page = browse(site.people.bob).post("/jobs/new/", {**FORM, "name": site.bobs.name})

    assert page.status_code == 422
    assert set(page.context["form"].errors) == {"name"}


def test_queue_of_another_tenant_does_not_exist(site: Site, browse: Browse) -> None:
    """A queue that one may not see is told like one that is not there."""
    client = browse(site.people.bob)

    hidden = client.post("/jobs/new/", {**FORM, "queue": "mill"})
    absent = client.post("/jobs/new/", {**FORM, "queue": "nowhere"})

    assert (hidden.status_code, absent.status_code) == (422, 422)
    assert "mill" in hidden.context["form"].errors["queue"][0]
    assert (
        hidden.context["form"].errors["queue"][0].replace("mill", "nowhere")
        == (absent.context["form"].errors["queue"][0])
    )


def test_form_and_yaml_say_the_same(site: Site, browse: Browse) -> None:
    """Form to YAML to form to submit gives the same spec as submitting the form at once."""
    client = browse(site.people.bob)
    client.post("/jobs/new/", FORM)
    direct = Job.objects.get(name="train")
    Job.objects.filter(id=direct.id).update(phase="Terminated")

    text = client.post("/jobs/new/", {**FORM, "to": "yaml"}).context["yaml"]
    shown = client.post("/jobs/new/", {"mode": "yaml", "to": "form", "yaml": text}).context["form"]
    client.post("/jobs/new/", {**_posted(shown), "to": "submit"})

    again = Job.objects.filter(name="train").exclude(id=direct.id).get()
    assert again.spec == direct.spec


def test_what_only_yaml_says_survives_the_form(site: Site, browse: Browse) -> None:
    """A document's tolerations and labels are listed in the form and are in the submitted job."""
    text = yaml.safe_dump(
        {
            "name": "labelled",
            "queue": "robots",
            "labels": {"project": "x"},
            "roles": [
                {
                    "name": "worker",
                    "replicas": 1,
                    "cpu": 1,
                    "command": ["true"],
                    "tolerations": [{"key": "spot", "operator": "Exists"}],
                }
            ],
        }
    )
    client = browse(site.people.bob)

    page = client.post("/jobs/new/", {"mode": "yaml", "to": "form", "yaml": text})
    form = page.context["form"]
    client.post("/jobs/new/", {**_posted(form), "to": "submit"})

    job = Job.objects.get(name="labelled")
    assert "labels.project" in dict(form.only_in_yaml)
    assert "Said only in YAML" in page.content.decode()
    assert job.spec["labels"] == {"project": "x"}
    assert job.spec["roles"][0]["tolerations"][0]["key"] == "spot"
    assert job.spec["roles"][0]["command"] == ["true"]


def test_wrong_yaml_keeps_the_text_and_names_the_place(site: Site, browse: Browse) -> None:
    """A document that breaks rules is shown again with the paths of what is wrong."""
    role = {"name": "w", "replicas": 1, "min_available": 5, "command": ["a"]}
    text = yaml.safe_dump({"name": "x", "queue": "robots", "roles": [role]})

    page = browse(site.people.bob).post(
        "/jobs/new/", {"mode": "yaml", "to": "submit", "yaml": text}
    )

    assert page.status_code == 422
    assert [one.path for one in page.context["problems"]] == ["roles[0].min_available"]
    assert page.context["yaml"] == text


def test_fit_panel_tells_problems_and_fit(site: Site, browse: Browse) -> None:
    """Beside the form stands what is wrong; for a valid job, that it fits or what it waits for."""
    client = browse(site.people.bob)
    small = {**FORM, "roles-1-replicas": "2"}

    wrong = client.post("/jobs/new/fit/", {**FORM, "roles-0-cpu": "many"}).content.decode()
    fits = client.post("/jobs/new/fit/", small).content.decode()
    waits = client.post(
        "/jobs/new/fit/", {**small, "roles-1-gpu": "64", "roles-1-min_available": "2"}
    ).content.decode()

    assert "Not valid yet" in wrong
    assert 'href="#roles-0-cpu"' in wrong
    assert 'data-problem="roles-0-cpu"' in wrong
    assert "Role ps · CPU" in wrong
    assert "roles[0]" not in wrong
    assert "Fits now" in fits
    assert "Would wait" in waits


def test_fit_panel_tells_when_the_queue_is_through(site: Site, browse: Browse) -> None:
    """Who would wait sees what is told of the last one in line; of a queue not seen, nothing."""
    at = database_now()
    later = at + timedelta(minutes=30)
    for job in (site.bobs, site.charlies):
        StartForecast.objects.create(job=job, made_at=at, p50_at=later, p90_at=later)
    untold = make_job(site.robots, site.people.bob, "untold", site.now)
    StartForecast.objects.create(job=untold, made_at=at, p50_at=None, p90_at=None)
    big = {**FORM, "roles-1-gpu": "64", "roles-1-min_available": "2"}
    client = browse(site.people.bob)

    waits = client.post("/jobs/new/fit/", {**big, "queue": "robots"})
    hidden = client.post("/jobs/new/fit/", {**big, "queue": "mill"})

    told = f"The last start that is foretold in this queue: about {about(later)}."
    assert told in waits.content.decode()
    assert hidden.context.get("ahead") is None


def test_uploaded_code_survives_a_mistake(site: Site, browse: Browse) -> None:
    """Files are kept when a field is wrong, and belong to the job once it is submitted."""
    client = browse(site.people.bob)
    upload = SimpleUploadedFile("train.py", b"print('hello')")

    page = client.post("/jobs/new/", {**FORM, "name": "Wrong Name", "code_files": upload})
    kept = page.context["form"].code_file_id
    client.post("/jobs/new/", {**FORM, "code_file_id": kept})

    file = JobFile.objects.get(id=kept)
    assert file.path == "train.py"
    assert file.job == Job.objects.get(name="train")


def test_clone_fills_the_form_with_a_new_name(site: Site, browse: Browse) -> None:
    """A clone has the spec of its original under the next name."""
    client = browse(site.people.bob)

    form = client.get(f"/jobs/{site.bobs.id}/clone/").context["form"]
    client.post("/jobs/new/", {**_posted(form), "to": "submit"})

    clone = Job.objects.get(name="bobs-training-2")
    assert clone.spec["roles"][0]["env"] == {"EPOCHS": "10"}
    assert clone.spec["roles"][0]["gpu_milli"] == 1000


def _posted(form: Any) -> dict[str, Any]:
    """Return what a browser would send for a shown form."""
    data: dict[str, Any] = {"mode": "form", "plugins": form.plugins, "extra": form.extra_json}
    data |= form.values
    for policy in form.policies:
        data |= {f"{policy.prefix}{name}": value for name, value in policy.values.items()}
    for role in form.roles:
        data |= {f"{role.prefix}{name}": value for name, value in role.values.items()}
        data[f"{role.prefix}extra"] = role.extra_json
        for policy in role.policies:
            data |= {f"{policy.prefix}{name}": value for name, value in policy.values.items()}
    return data


def test_problem_of_yaml_names_its_line(site: Site, browse: Browse) -> None:
    """The panel and the refused page name the line of a wrong field, and of what YAML cannot be."""
    client = browse(site.people.bob)
    wrong = "name: train\nqueue: robots\nroles:\n  - name: worker\n    replcas: 2\n"
    broken = "name: train\nroles: [\n"

    panel = client.post("/jobs/new/fit/", {"mode": "yaml", "yaml": wrong}).content.decode()
    page = client.post("/jobs/new/", {"mode": "yaml", "to": "submit", "yaml": wrong})
    unreadable = client.post("/jobs/new/fit/", {"mode": "yaml", "yaml": broken}).content.decode()

    assert 'data-line="5"' in panel
    assert 'data-show-line="5"' in page.content.decode()
    assert "data-line=" in unreadable


def test_panel_tells_the_order_of_policies(site: Site, browse: Browse) -> None:
    """A role's policies come before the job's, those by exit code before the others."""
    form = {**FORM, "policies-1-exit_code": "137", "policies-1-action": "AbortJob"}

    page = browse(site.people.bob).post("/jobs/new/fit/", form)

    order = {
        role: [(one.policy.action.value, one.is_roles_own) for one in policies]
        for role, policies in page.context["policy_order"]
    }
    assert order == {
        "ps": [("AbortJob", False), ("RestartJob", False)],
        "worker": [("RestartTask", True), ("AbortJob", False), ("RestartJob", False)],
    }


def test_fresh_form_says_nothing_of_yaml(site: Site, browse: Browse) -> None:
    """A form that was just opened lists nothing as said only in YAML."""
    page = browse(site.people.bob).get("/jobs/new/").content.decode()

    assert "Said only in YAML" not in page


def test_unfinished_job_is_not_called_wrong(site: Site, browse: Browse) -> None:
    """What is not written yet is told as missing; what is written wrongly as not valid."""
    client = browse(site.people.bob)
    nameless = {**FORM, "name": ""}

    texts = [
        client.post("/jobs/new/fit/", form).content.decode()
        for form in (nameless, {**nameless, "roles-0-cpu": "two"})
    ]

    assert ["Not complete yet" in text for text in texts] == [True, False]
    assert ["Not valid yet" in text for text in texts] == [False, True]
