"""Jobs are kept to be submitted again, by form or YAML, each for its owner alone."""

from collections.abc import Callable

from django.test import Client

from scheduling.models import Job, JobTemplate
from tenants.models import User
from tests.web.pages.conftest import Site
from tests.web.pages.test_job_form import FORM

Browse = Callable[[User], Client]


def test_form_is_kept_and_filled_again(site: Site, browse: Browse) -> None:
    """A kept job fills the form as it was, and nothing is submitted on the way."""
    client = browse(site.people.bob)

    reply = client.post("/jobs/new/", {**FORM, "to": "template"})
    template = JobTemplate.objects.get()
    form = client.get(f"/jobs/new/?template={template.id}").context["form"]

    assert reply.headers["Location"] == "/templates/"
    assert (template.name, template.owner) == ("train", site.people.bob)
    assert not Job.objects.filter(name="train").exists()
    assert [role.values["name"] for role in form.roles] == ["ps", "worker"]
    assert form.roles[1].values["command"] == "python worker.py --name 'two words'"
    assert form.roles[1].policies[0].values["action"] == "RestartTask"


def test_yaml_is_kept_word_for_word(site: Site, browse: Browse) -> None:
    """What was written as YAML comes back with its comments; keeping it again replaces it."""
    text = "# nightly\nname: night\nqueue: robots\nroles:\n- {name: w, command: 'true'}\n"
    client = browse(site.people.bob)
    client.post("/jobs/new/", {"mode": "yaml", "to": "template", "yaml": "# old\n" + text})

    client.post("/jobs/new/", {"mode": "yaml", "to": "template", "yaml": text})
    template = JobTemplate.objects.get()
    page = client.get(f"/jobs/new/?template={template.id}&as=yaml")

    assert page.context["yaml"] == text


def test_wrong_job_is_not_kept(site: Site, browse: Browse) -> None:
    """A job with mistakes is told of them and not kept."""
    page = browse(site.people.bob).post("/jobs/new/", {**FORM, "to": "template", "name": "A b"})

    assert page.status_code == 422
    assert "name" in page.context["form"].errors
    assert not JobTemplate.objects.exists()


def test_templates_are_ones_own(site: Site, browse: Browse) -> None:
    """Another person neither sees, opens nor deletes a template; a damaged id is not found."""
    client = browse(site.people.bob)
    client.post("/jobs/new/", {**FORM, "to": "template"})
    template = JobTemplate.objects.get()
    alice = browse(site.people.alice)

    statuses = [
        alice.get(f"/jobs/new/?template={template.id}").status_code,
        alice.post(f"/templates/{template.id}/delete/").status_code,
        client.get("/jobs/new/?template=nonsense").status_code,
        client.post("/jobs/views/", {"forget": "nonsense"}).status_code,
    ]
    listed = list(alice.get("/templates/").context["templates"])
    client.post(f"/templates/{template.id}/delete/")

    assert statuses == [404, 404, 404, 404]
    assert listed == []
    assert not JobTemplate.objects.exists()


def test_fifty_first_template_is_refused(site: Site, browse: Browse) -> None:
    """Fifty templates are the most; the refusal says so at the name and keeps what was typed."""
    JobTemplate.objects.bulk_create(
        JobTemplate(owner=site.people.bob, name=f"t{n}", text="x", created_at=site.now)
        for n in range(50)
    )

    page = browse(site.people.bob).post("/jobs/new/", {**FORM, "to": "template"})

    assert page.status_code == 422
    assert "You have 50 templates" in page.context["form"].errors["name"][0]
    assert JobTemplate.objects.count() == 50
