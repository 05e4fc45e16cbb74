"""Administration: the installation's own processes, and which runtime serves which image."""

from collections.abc import Sequence

import redis
from django.conf import settings
from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.translation import gettext as _

from controlplane.forms import images as forms
from controlplane.forms.images import RulesForm
from controlplane.pages.frame import PageRequest, now, page, render_page
from scheduling.domain import images as image_domain
from scheduling.domain.queries import cluster as cluster_queries
from scheduling.models import Cluster, ImageRule
from tenants.domain.access import Verb, may, require
from tenants.domain.errors import Conflict

REDIS_TIMEOUT_SECONDS = 1.0


@page
def index(request: PageRequest) -> HttpResponse:
    """Lead those who type `/admin/` to where administration begins: the organisation."""
    del request
    return HttpResponseRedirect(reverse("pages:org_tree"))


@page
def health(request: PageRequest) -> HttpResponse:
    """Show leases, the last cycles, the outbox and the agents."""
    require(request.actor, Verb.SETTINGS_READ, None, what="page")
    context = {"health": cluster_queries.health(now=now()), "redis_ok": _redis_answers()}
    return render_page(request, "admin_area/health.html", context, section="pages:health")


def _redis_answers() -> bool:
    """Ask Redis, and wait for a second at most."""
    client = redis.Redis.from_url(
        settings.REDIS_URL,
        socket_connect_timeout=REDIS_TIMEOUT_SECONDS,
        socket_timeout=REDIS_TIMEOUT_SECONDS,
    )
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False
    finally:
        client.close()


@page
def images(request: PageRequest) -> HttpResponse:
    """Show which runtime serves which image, as a form to who may change it."""
    # The version first: rules that changed in between make saving fail, not overwrite.
    cluster = cluster_queries.load_cluster(request.GET.get("cluster", ""))
    rules = image_domain.rules(actor=request.actor, cluster_id=cluster.id)
    if request.method == "POST":
        return _change_rules(request, cluster)
    form = None
    if may(request.actor, Verb.RUNTIME_ADMIN, None):
        form = forms.form_of_rules(rules, image_domain.unit_paths(), cluster.version)
    return _show_rules(request, cluster, form, rules)


def _change_rules(request: PageRequest, cluster: Cluster) -> HttpResponse:
    require(request.actor, Verb.RUNTIME_ADMIN, None, what="cluster")
    form = forms.form_of_post(request.POST)
    action = request.POST.get("action", "save")
    if action != "save":
        form.rearrange(action)
        return _show_rules(request, cluster, form)
    edits = form.edits(image_domain.unit_paths())
    form.take(image_domain.problems_of(edits))
    if not form.is_valid:
        return _show_rules(request, cluster, form, status=422)
    try:
        image_domain.replace_rules(
            actor=request.actor,
            cluster_id=cluster.id,
            edits=edits,
            expected_version=form.version,
            now=now(),
            reason=form.reason,
        )
    except Conflict:
        return _show_conflict(request, cluster, form)
    messages.success(request, _("Saved; the next cycle plans by this table."))
    return HttpResponseRedirect(request.get_full_path())


def _show_conflict(request: PageRequest, cluster: Cluster, form: RulesForm) -> HttpResponse:
    """Show the table in force above what was typed; saving again replaces it knowingly."""
    cluster.refresh_from_db()
    rules = image_domain.rules(actor=request.actor, cluster_id=cluster.id)
    form.version = cluster.version
    return _show_rules(request, cluster, form, rules, status=409)


def _show_rules(
    request: PageRequest,
    cluster: Cluster,
    form: RulesForm | None,
    rules: Sequence[ImageRule] = (),
    *,
    status: int = 200,
) -> HttpResponse:
    context = {
        "cluster": cluster,
        "form": form,
        "rules": rules,
        "is_conflict": status == 409,  # noqa: PLR2004 -- the status of a conflict
        "offered": image_domain.offered_runtimes(cluster.id),
        "unit_paths": image_domain.unit_paths().values() if form else (),
    }
    return render_page(
        request, "admin_area/images.html", context, section="pages:images", status=status
    )
