"""Draws form fields in the pages' own classes."""

from django import template
from django.forms import BoundField
from django.utils.safestring import SafeString

register = template.Library()


@register.simple_tag
def styled(field: BoundField) -> SafeString:
    """Draw a bound field with the class of its widget, tied to its error."""
    kind = {"select": "select", "textarea": "textarea"}.get(field.widget_type, "input")
    attributes = {"class": kind}
    if field.errors:
        attributes |= {"aria-invalid": "true", "aria-describedby": f"{field.id_for_label}-error"}
    return field.as_widget(attrs=attributes)
