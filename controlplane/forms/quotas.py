"""The form of a quota: amounts as people write them become limits, and go back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from controlplane.forms.people import TextForm
from controlplane.units import amount as shown_amount
from scheduling.models import QuotaResource
from scheduling.spec.quantities import write_bytes, write_thousandths
from scheduling.spec.reader import Findings, read_amount

JOBS = frozenset({QuotaResource.RUNNING_JOBS, QuotaResource.QUEUED_JOBS})
IN_BYTES = frozenset({QuotaResource.MEMORY, QuotaResource.STORAGE})
LONGEST_NUMBER = 9


@dataclass(frozen=True, slots=True)
class Field:
    """A field of the form, named as in the API."""

    name: str
    resource: QuotaResource
    label: str | Promise
    example: str


FIELDS = (
    Field("running_jobs", QuotaResource.RUNNING_JOBS, _("Running jobs"), "10"),
    Field("queued_jobs", QuotaResource.QUEUED_JOBS, _("Waiting jobs"), "50"),
    Field("gpu", QuotaResource.GPU, _("GPUs"), "8"),
    Field("cpu", QuotaResource.CPU, _("CPUs"), "64"),
    Field("memory", QuotaResource.MEMORY, _("Memory"), "512Gi"),
    Field("storage", QuotaResource.STORAGE, _("Storage of files, logs not counted"), "1Ti"),
)
LABELS = {one.resource: one.label for one in FIELDS}


def text_of(resource: QuotaResource, amount: int) -> str:
    """Write a limit as it is typed."""
    if resource in JOBS:
        return str(amount)
    return write_bytes(amount) if resource in IN_BYTES else write_thousandths(amount)


def shown(resource: QuotaResource, amount: int) -> str:
    """Write an amount as it is read."""
    if resource in JOBS:
        return str(amount)
    return shown_amount(amount, "memory" if resource in IN_BYTES else resource)


def values_of(limits: Mapping[QuotaResource, int]) -> dict[str, str]:
    """Return the form's texts for limits."""
    return {
        one.name: text_of(one.resource, limits[one.resource]) if one.resource in limits else ""
        for one in FIELDS
    }


def limits_of(form: TextForm) -> dict[QuotaResource, int]:
    """Read the limits; what is empty is not limited, what is no amount is said at its field."""
    limits = {}
    for one in FIELDS:
        text = form.text(one.name)
        if not text:
            continue
        if one.resource in JOBS:
            if not text.isdecimal() or len(text) > LONGEST_NUMBER:
                form.say(one.name, "not_a_count", {"value": text[:40]})
            else:
                limits[one.resource] = int(text)
            continue
        findings = Findings()
        limits[one.resource] = read_amount(str(one.resource), text, one.name, findings)
        for problem in findings.problems:
            form.say(one.name, problem.code, problem.params)
    return limits
