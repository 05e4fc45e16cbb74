"""Draws fields, roles and states of the pages about people and org units."""

from collections.abc import Sequence
from typing import Any

from django import template
from django.utils.safestring import SafeString
from django.utils.text import slugify
from django.utils.translation import gettext as _

from controlplane.forms.people import Choices, TextForm
from controlplane.templatetags.terrace import chip
from scheduling.domain import access_wording
from scheduling.domain.queries.people import state_of
from tenants.models import User

register = template.Library()
LONGEST_SLUG = 63
register.filter("role_name", access_wording.role_name)
register.filter("verb_name", access_wording.verb_name)

_ACCOUNT_TOKENS = {
    "active": "succeeded",
    "invited": "queued",
    "disabled": "held",
    "removed": "unknown",
}


@register.filter
def kind_name(kind: str) -> str:
    """Return the shown name of a kind of unit."""
    return str(access_wording.KIND_NAMES.get(kind, kind))


@register.filter
def slug_of(name: str) -> str:
    """Propose a queue's name for a unit's; empty where nothing usable is left."""
    return slugify(name)[:LONGEST_SLUG].strip("-")


@register.simple_tag
def account_chip(user: User) -> SafeString:
    """Draw what became of an account."""
    state = state_of(user).value
    return chip(_ACCOUNT_TOKENS[state], access_wording.ACCOUNT_STATES[state])


@register.filter
def role_names(roles: Sequence[str]) -> str:
    """Write several roles in one line."""
    return ", ".join(access_wording.role_name(role) for role in roles) or _("none")


@register.filter
def token_state(token: Any, now: Any) -> str:
    """Say whether a token is in force, revoked or at its end."""
    if token.revoked_at is not None:
        return _("revoked")
    return _("in force") if token.expires_at > now else _("at its end")


@register.inclusion_tag("_form_field.html")
def text_field(  # noqa: PLR0913, PLR0917 -- what a field shows
    form: TextForm,
    name: str,
    label: str,
    kind: str = "text",
    span: int = 6,
    help: str = "",  # noqa: A002 -- the word for it on pages
    choices: Choices = (),
    required: bool = False,  # noqa: FBT001, FBT002 -- by keyword in templates
    autocomplete: str = "off",
    placeholder: str = "",
) -> dict[str, object]:
    """Draw one field with its value and its problems."""
    return {
        "name": name,
        "label": label,
        "value": form.values.get(name, ""),
        "errors": form.errors.get(name, []),
        "help": help,
        "kind": kind,
        "choices": choices,
        "span": span,
        "required": required,
        "autocomplete": autocomplete,
        "placeholder": placeholder,
    }
