"""What the palette (Ctrl-K) finds: pages, queues and jobs that the viewer may read."""

from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _

from controlplane.pages.frame import PageRequest, page
from scheduling.domain.queries.jobs import JobFilter, list_jobs
from scheduling.models import Queue

MOST = 6


@page
def found(request: PageRequest) -> HttpResponse:
    """Answer with links for the typed words."""
    text = request.GET.get("q", "").strip()[:100]
    entries = [entry for entry in _pages() if text.lower() in entry[1].lower()]
    context: dict[str, object] = {"pages": entries[:MOST], "queues": [], "jobs": []}
    if text:
        queues = Queue.objects.visible_to(request.actor).filter(name__icontains=text)
        context["queues"] = list(queues.order_by("name")[:MOST])
        context["jobs"] = list_jobs(request.actor, JobFilter(text=text), limit=MOST).jobs
    return render(request, "_palette.html", context)


def _pages() -> list[tuple[str, str]]:
    return [
        (reverse("pages:home"), _("My work")),
        (reverse("pages:job_list"), _("Jobs")),
        (reverse("pages:job_new"), _("New job")),
        (reverse("pages:queue_tree"), _("Queues")),
        (reverse("pages:cluster"), _("Cluster")),
        (reverse("pages:activity"), _("Activity")),
    ]
