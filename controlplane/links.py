"""Addresses that one page writes hundreds of times: resolved once, then filled in."""

from functools import cache
from uuid import UUID

from django.urls import reverse

_ANY = UUID(int=0)


@cache
def _job_pattern() -> str:
    return reverse("pages:job", args=[_ANY])


def job_url(job_id: UUID) -> str:
    """Return the address of a job's page."""
    return _job_pattern().replace(str(_ANY), str(job_id))


def task_url_prefix(job_id: UUID, role: str) -> str:
    """Return what the addresses of a role's tasks begin with; the index and a slash follow."""
    return reverse("pages:job_task", args=[job_id, role, 0]).removesuffix("0/")
