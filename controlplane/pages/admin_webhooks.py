"""Webhooks: where events are sent to, what did not arrive, and their secrets, shown once."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_POST

from controlplane.forms.people import Choices, form_of
from controlplane.pages.frame import PageRequest, now, page, render_page
from controlplane.pages.job_actions import error_text
from scheduling.domain import events
from tenants.domain import webhooks
from tenants.domain.access import Verb, may, reads, refusal
from tenants.domain.errors import Conflict, Denied, Invalid, NotFound
from tenants.domain.webhooks import NewWebhook
from tenants.models import OrgClosure, OrgUnit, Webhook

SECTION = "pages:webhooks"


@page
def listing(request: PageRequest) -> HttpResponse:
    """Show the webhooks of the viewer's units, those with dead deliveries by their number."""
    found = list(webhooks.visible_to(request.actor).order_by("name", "id"))
    dead = webhooks.dead_deliveries([one.id for one in found])
    keys = list(dead.order_by().values_list("key", flat=True))
    context = {
        "hooks": [(one, keys.count(str(one.id))) for one in found],
        "may_create": bool(_units(request)),
    }
    return render_page(request, "admin_webhooks/list.html", context, section=SECTION)


@page
def new(request: PageRequest) -> HttpResponse:
    """Make a webhook and show its secret, this once."""
    units = _units(request)
    if not units:
        raise refusal(request.actor, Verb.WEBHOOK_EDIT, None)
    form = form_of(request.POST, "unit", "name", "url", "reason")
    subjects = [one for one in webhooks.SUBJECTS if one in request.POST.getlist("subjects")]
    if request.method == "POST":
        unit_id = form.unit("unit")
        if form.is_valid and unit_id is not None:
            try:
                webhook, secret = webhooks.create_webhook(
                    actor=request.actor,
                    unit_id=unit_id,
                    new=NewWebhook(form.text("name"), form.text("url"), subjects),
                    cursor=str(events.newest()),
                    now=now(),
                    reason=form.text("reason"),
                )
            except (Invalid, Conflict, Denied) as error:
                form.take(error, {"subjects": "subjects"})
            else:
                return _show(request, webhook, secret=secret)
    choices: Choices = [(str(unit.id), unit.name) for unit in units]
    context = {
        "form": form,
        "units": choices if len(units) == 1 else [("", ""), *choices],
        "subjects": [
            (one, one in subjects or (one == "job" and not request.POST))
            for one in webhooks.SUBJECTS
        ],
    }
    template = "admin_webhooks/new.html"
    return render_page(request, template, context, section=SECTION, status=form.status)


@page
def detail(request: PageRequest, webhook_id: UUID) -> HttpResponse:
    """Show one webhook and what of it did not arrive."""
    return _show(request, _load(request, webhook_id))


@page
@require_POST
def act(request: PageRequest, webhook_id: UUID) -> HttpResponse:
    """Switch, renew, retry or remove a webhook."""
    webhook = _load(request, webhook_id)
    version = request.POST.get("version", "")
    given: dict[str, Any] = {"actor": request.actor, "webhook_id": webhook.id, "now": now()}
    expected = int(version) if version.isdecimal() and len(version) < 18 else 0  # noqa: PLR2004 -- fits a column
    try:
        match request.POST.get("action", ""):
            case "on" | "off" as word:
                is_active = word == "on"
                webhooks.set_active(**given, is_active=is_active, expected_version=expected)
                messages.success(
                    request, _("It is told again.") if is_active else _("Switched off.")
                )
            case "secret":
                webhook, secret = webhooks.renew_secret(**given, expected_version=expected)
                return _show(request, webhook, secret=secret)
            case "retry":
                count = webhooks.retry_dead(**given)
                text = ngettext(
                    "%(n)d delivery is tried again.", "%(n)d deliveries are tried again.", count
                )
                messages.success(request, text % {"n": count})
            case "remove":
                webhooks.remove_webhook(**given, expected_version=expected)
                messages.success(request, _("Removed: nothing is sent there any more."))
                return HttpResponseRedirect(reverse("pages:webhooks"))
    except Conflict as error:
        messages.error(request, error_text(error))
    return HttpResponseRedirect(reverse("pages:webhook", args=[webhook.id]))


def _load(request: PageRequest, webhook_id: UUID) -> Webhook:
    webhook = webhooks.visible_to(request.actor).filter(id=webhook_id).first()
    if webhook is None:
        raise NotFound("webhook")
    return webhook


def _show(request: PageRequest, webhook: Webhook, *, secret: str = "") -> HttpResponse:
    context = {
        "hook": webhook,
        "secret": secret,
        "dead": list(webhooks.dead_deliveries([webhook.id])[:20]),
        "may_edit": may(request.actor, Verb.WEBHOOK_EDIT, webhook.unit_id),
    }
    return render_page(request, "admin_webhooks/detail.html", context, section=SECTION)


def _units(request: PageRequest) -> list[OrgUnit]:
    """Return the units where the viewer may make webhooks."""
    scope = reads(request.actor, Verb.WEBHOOK_EDIT)
    rows = OrgUnit.objects.filter(is_archived=False).order_by("name", "id")
    if not scope.sees_everything:
        below = OrgClosure.objects.filter(ancestor__in=scope.readable_units)
        rows = rows.filter(id__in=below.values("descendant_id"))
    return list(rows)
