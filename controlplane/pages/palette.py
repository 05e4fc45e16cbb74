"""What the palette (Ctrl-K) finds: pages, actions, queues, jobs and views of the viewer's own."""

from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _

from controlplane.pages.frame import PageRequest, page
from scheduling.domain.queries.jobs import JobFilter, list_jobs
from scheduling.models import Queue
from tenants.domain import personal
from tenants.domain.access import Actor, Verb, may

MOST = 6
Entry = tuple[str, str]


@page
def found(request: PageRequest) -> HttpResponse:
    """Answer with links for the typed words."""
    text = request.GET.get("q", "").strip()[:100]
    actor = request.actor
    views = [
        (f"{reverse('pages:job_list')}?{view.query}", view.name)
        for view in personal.saved_views(actor, "jobs")
    ]
    context: dict[str, object] = {
        "pages": _matching(_pages(actor), text),
        "actions": _matching(_actions(actor), text),
        "views": _matching(views, text),
        "queues": [],
        "jobs": [],
    }
    if text:
        queues = Queue.objects.visible_to(actor).filter(name__icontains=text)
        context["queues"] = list(queues.order_by("name")[:MOST])
        context["jobs"] = list_jobs(actor, JobFilter(text=text), limit=MOST).jobs
    return render(request, "_palette.html", context)


def _matching(entries: list[Entry], text: str) -> list[Entry]:
    """Return the entries that hold every typed word, in whatever order."""
    words = text.casefold().split()
    return [entry for entry in entries if all(word in entry[1].casefold() for word in words)][
        : MOST if text else None
    ]


def _pages(actor: Actor) -> list[Entry]:
    everybody = [
        (reverse("pages:home"), _("My work")),
        (reverse("pages:job_list"), _("Jobs")),
        (reverse("pages:queue_tree"), _("Queues")),
        (reverse("pages:change_list"), _("Changes of queues")),
        (reverse("pages:ops"), _("Operations")),
        (reverse("pages:cluster"), _("Cluster")),
        (reverse("pages:activity"), _("Activity")),
        (reverse("pages:notifications"), _("Notifications")),
        (reverse("pages:job_templates"), _("Templates")),
    ]
    admins = [
        (reverse("pages:health"), _("Health")),
        (reverse("pages:images"), _("Images")),
    ]
    return everybody + (admins if actor.is_platform_admin else [])


def _actions(actor: Actor) -> list[Entry]:
    jobs = reverse("pages:job_list")
    new = reverse("pages:job_new")
    entries = [
        (new, _("New job")),
        (f"{new}?as=yaml", _("New job from YAML")),
        (f"{jobs}?state=running&user=me", _("See my running jobs")),
        (f"{jobs}?state=waiting&user=me", _("See my waiting jobs")),
        (f"{jobs}?state=failed&user=me", _("See my failed jobs")),
        (f"{reverse('pages:job_export')}?user=me", _("Download my jobs as CSV")),
    ]
    if may(actor, Verb.NODE_JOIN, None):
        entries.append((reverse("pages:cluster_join"), _("Add a machine")))
    return entries
