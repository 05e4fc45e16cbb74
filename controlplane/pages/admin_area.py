"""Administration: how the installation's own processes are."""

from django.http import HttpResponse

from controlplane.pages.frame import PageRequest, now, page, render_page
from scheduling.domain.queries import cluster as cluster_queries
from tenants.domain.access import Verb, require


@page
def health(request: PageRequest) -> HttpResponse:
    """Show leases, the last cycles, the outbox and the agents."""
    require(request.actor, Verb.SETTINGS_READ, None, what="page")
    context = {"health": cluster_queries.health(now=now())}
    return render_page(request, "admin_area/health.html", context, section="pages:health")
