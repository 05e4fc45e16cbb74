"""What the palette (Ctrl-K) finds: pages, queues and jobs that the viewer may read."""

from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _

from controlplane.pages.frame import PageRequest, page
from scheduling.domain.queries.jobs import JobFilter, list_jobs
from scheduling.models import Queue
from tenants.domain.access import Verb, reads

MOST = 6


@page
def found(request: PageRequest) -> HttpResponse:
    """Answer with links for the typed words."""
    text = request.GET.get("q", "").strip()[:100]
    entries = [entry for entry in _pages(request) if text.lower() in entry[1].lower()]
    context: dict[str, object] = {"pages": entries[:MOST], "queues": [], "jobs": []}
    if text:
        queues = Queue.objects.visible_to(request.actor).filter(name__icontains=text)
        context["queues"] = list(queues.order_by("name")[:MOST])
        context["jobs"] = list_jobs(request.actor, JobFilter(text=text), limit=MOST).jobs
    return render(request, "_palette.html", context)


def _pages(request: PageRequest) -> list[tuple[str, str]]:
    scope = reads(request.actor, Verb.GRANT_READ)
    of_admins = [
        (reverse("pages:org_tree"), _("Org units")),
        (reverse("pages:people"), _("People")),
        (reverse("pages:person_invite"), _("Invite somebody")),
        (reverse("pages:tokens"), _("Tokens")),
    ]
    return [
        *(of_admins if scope.sees_everything or scope.readable_units else []),
        (reverse("pages:profile"), _("Your profile")),
        (reverse("pages:home"), _("My work")),
        (reverse("pages:job_list"), _("Jobs")),
        (reverse("pages:job_new"), _("New job")),
        (reverse("pages:queue_tree"), _("Queues")),
        (reverse("pages:change_list"), _("Changes of queues")),
        (reverse("pages:ops"), _("Operations")),
        (reverse("pages:cluster"), _("Cluster")),
        (reverse("pages:activity"), _("Activity")),
    ]
