"""What happened to the viewer's own jobs, and of which events they want to be told."""

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from controlplane.pages.frame import PageRequest, now, page, render_page
from scheduling.domain.queries.notifications import notifications
from tenants.domain import personal
from tenants.domain.access import Actor
from tenants.models import NotificationChoice

MOST_COUNTED = 9


def unread(actor: Actor, choice: NotificationChoice) -> str:
    """Return what the bell shows: nothing, a number, or that there are more."""
    found = notifications(actor, choice, now=now(), most=MOST_COUNTED + 1)
    count = sum(one.is_unread for one in found)
    return f"{MOST_COUNTED}+" if count > MOST_COUNTED else str(count or "")


@page
def listing(request: PageRequest) -> HttpResponse:
    """Show the newest events; opening the page does not count as reading, the button does."""
    choice = personal.notification_choice(request.actor)
    found = notifications(request.actor, choice, now=now())
    context = {
        "choice": choice,
        "notifications": found,
        "has_unread": any(one.is_unread for one in found),
    }
    return render_page(request, "notifications/list.html", context, section="pages:notifications")


@page
@require_POST
def choose(request: PageRequest) -> HttpResponse:
    """Keep of which events the viewer is told."""
    wanted = set(request.POST.getlist("event"))
    personal.choose_notifications(
        actor=request.actor,
        wants_ended="ended" in wanted,
        wants_failed="failed" in wanted,
        wants_preempted="preempted" in wanted,
    )
    messages.success(request, _("Kept."))
    return HttpResponseRedirect(reverse("pages:notifications"))


@page
@require_POST
def read(request: PageRequest) -> HttpResponse:
    """Count all that happened up to now as read."""
    personal.mark_read(actor=request.actor, until=now())
    return HttpResponseRedirect(reverse("pages:notifications"))
