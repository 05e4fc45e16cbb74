"""My work: what runs, waits or failed for the viewer, and the next step."""

from django.http import HttpResponse

from controlplane.pages.fragments import my_jobs_of
from controlplane.pages.frame import PageRequest, page, render_page
from scheduling.domain.queries import cluster as cluster_queries
from scheduling.domain.queries.quotas import own_quotas, where_one_works
from scheduling.models import Node
from tenants.domain.access import Verb, may


@page
def my_work(request: PageRequest) -> HttpResponse:
    """Show the viewer's own jobs, and to a newcomer the way to the first one."""
    actor = request.actor
    context = {
        **my_jobs_of(actor),
        "own": own_quotas(request.user.pk, where_one_works(actor)),
        "may_join": may(actor, Verb.NODE_JOIN, None),
        "has_nodes": Node.objects.exists(),
        "has_cluster": cluster_queries.first_cluster() is not None,
    }
    return render_page(request, "home/my_work.html", context, section="pages:home")
