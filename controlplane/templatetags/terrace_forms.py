"""Draws form fields in the pages' own classes."""

from collections.abc import Sequence

from django import template
from django.forms import BoundField
from django.utils.safestring import SafeString

from controlplane.forms import job_labels
from controlplane.forms.jobs import JobForm, Part

register = template.Library()


@register.simple_tag
def styled(field: BoundField) -> SafeString:
    """Draw a bound field with the class of its widget, tied to its error."""
    kind = {"select": "select", "textarea": "textarea"}.get(field.widget_type, "input")
    attributes: dict[str, str | bool] = {"class": kind}
    if field.errors:
        attributes |= {"aria-invalid": "true", "aria-describedby": f"{field.id_for_label}-error"}
    return field.as_widget(attrs=attributes)


@register.inclusion_tag("_field.html")
def job_field(  # noqa: PLR0913, PLR0917 -- what a field shows
    form: JobForm,
    part: Part | None,
    name: str,
    kind: str = "text",
    span: int = 4,
    help: str = "",  # noqa: A002 -- the word for it on pages
    placeholder: str = "",
    choices: Sequence[str] = (),
) -> dict[str, object]:
    """Draw one field of the job form with its value and its problems."""
    prefix = part.prefix if part else ""
    full = f"{prefix}{name}"
    values = part.values if part else form.values
    return {
        "name": full,
        "label": job_labels.label(prefix, name),
        "value": values.get(name, ""),
        "errors": form.errors.get(full, []),
        "help": help,
        "kind": kind,
        "choices": choices,
        "span": span,
        "placeholder": placeholder,
    }
