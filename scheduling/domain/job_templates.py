"""Jobs that people keep under a name to submit them again; each sees only their own."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from django.db import transaction

from scheduling.models import JobTemplate
from scheduling.spec.job_spec import JobSpec
from tenants.domain.access import Actor
from tenants.domain.errors import Invalid, NotFound, Problem
from tenants.models import User

MOST_TEMPLATES = 50


def job_templates(actor: Actor) -> list[JobTemplate]:
    """Return the actor's own templates, by name."""
    return list(JobTemplate.objects.filter(owner_id=actor.user_id).order_by("name"))


@transaction.atomic
def save_template(*, actor: Actor, spec: JobSpec, text: str, now: datetime) -> JobTemplate:
    """Keep a job under its name; a template of the same name is replaced.

    Raises:
        Invalid: there are as many templates as one may have.
        NotFound: the actor is nobody who could have some.
    """
    if actor.user_id is None:
        raise NotFound("user")
    owner = User.objects.select_for_update().get(id=actor.user_id)
    others = JobTemplate.objects.filter(owner=owner).exclude(name=spec.name)
    if others.count() >= MOST_TEMPLATES:
        raise Invalid([Problem("name", "too_many_templates", {"limit": MOST_TEMPLATES})])
    template, _is_new = JobTemplate.objects.update_or_create(
        owner=owner, name=spec.name, defaults={"text": text, "created_at": now}
    )
    return template


def load_template(actor: Actor, template_id: UUID) -> JobTemplate:
    """Return one of the actor's own templates.

    Raises:
        NotFound: it has no such template.
    """
    found = JobTemplate.objects.filter(id=template_id, owner_id=actor.user_id).first()
    if found is None:
        raise NotFound("template")
    return found


def delete_template(*, actor: Actor, template_id: UUID) -> None:
    """Forget one of the actor's own templates.

    Raises:
        NotFound: it has no such template.
    """
    load_template(actor, template_id).delete()
