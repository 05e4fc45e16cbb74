"""The scheduler of a cluster: what its cycles do, and the configuration that they go by."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _

from controlplane.charts import cycles as cycle_chart
from controlplane.pages.changes import effect_context
from controlplane.pages.frame import PageRequest, now, page, render_page
from scheduling.domain import network_tiers, queue_preview, scheduler_configs
from scheduling.domain.placement_rules import Tier
from scheduling.domain.queries import cluster as cluster_queries
from scheduling.domain.queries import scheduler as scheduler_queries
from scheduling.domain.wording import sentence
from scheduling.models import Cluster
from tenants.domain.access import Verb, may, require
from tenants.domain.errors import Conflict, Invalid, Problem

SECTION = "pages:cluster"
TOP = "#top"
"""Where the message stands: a browser would keep the fragment of the form."""


@page
def scheduler(request: PageRequest) -> HttpResponse:
    """Show a cluster's scheduler; on POST check or save its configuration."""
    require(request.actor, Verb.SETTINGS_READ, None, what="page")
    cluster = cluster_queries.load_cluster(request.GET.get("cluster", ""))
    if request.method == "POST":
        is_network = request.POST.get("action") == "network"
        return _save_tiers(request, cluster) if is_network else _save(request, cluster)
    return _show(request, cluster)


def _save(request: PageRequest, cluster: Cluster) -> HttpResponse:
    text = request.POST.get("text", "").replace("\r\n", "\n")
    version = request.POST.get("version", "")
    is_check = request.POST.get("action") == "check"
    typed: dict[str, object] = {"text": text, "reason": request.POST.get("reason", "")[:500]}
    notes: Sequence[Problem] = ()
    effect: dict[str, object] = {}
    try:
        if is_check:
            notes = scheduler_configs.check(actor=request.actor, text=text)
            effect = effect_context(
                queue_preview.preview_config(
                    actor=request.actor, cluster_id=cluster.id, text=text, now=now()
                )
            )
        else:
            scheduler_configs.edit(
                actor=request.actor,
                cluster_id=cluster.id,
                text=text,
                expected_version=int(version) if version.isdecimal() else -1,
                now=now(),
                reason=str(typed["reason"]),
            )
    except Invalid as error:
        return _show(request, cluster, {**typed, "problems": _told(error.problems)}, status=422)
    except Conflict as error:
        return _show(request, cluster, {**typed, "is_conflict": True, "theirs": error.current}, 409)
    if is_check:
        checked = {"is_checked": True, "notes": _told(notes), "effect": effect}
        return _show(request, cluster, {**typed, **checked})
    messages.success(request, _("Saved; the next cycle plans by it."))
    return HttpResponseRedirect(f"{request.get_full_path()}{TOP}")


def _told(problems: Iterable[Problem]) -> list[tuple[str, str]]:
    """Return places in the text and what is to be said of them."""
    return [
        (one.path.removeprefix("text").removeprefix("."), sentence(one.code, one.params))
        for one in problems
    ]


def _save_tiers(request: PageRequest, cluster: Cluster) -> HttpResponse:
    """Save the tiers: a line each, name and label."""
    lines = [line.split() for line in request.POST.get("tiers", "").splitlines() if line.strip()]
    version = request.POST.get("version", "")
    typed: dict[str, object] = {"tiers": request.POST.get("tiers", "")}
    try:
        network_tiers.edit(
            actor=request.actor,
            cluster_id=cluster.id,
            tiers=[Tier(words[0], " ".join(words[1:])) for words in lines],
            expected_version=int(version) if version.isdecimal() else -1,
            now=now(),
            reason=request.POST.get("reason", "")[:500],
        )
    except Invalid as error:
        problems = [sentence(one.code, one.params) for one in error.problems]
        return _show(request, cluster, {**typed, "tier_problems": problems}, status=422)
    except Conflict as error:
        problems = [sentence(error.code, error.params)]
        return _show(request, cluster, {**typed, "tier_problems": problems}, status=409)
    messages.success(request, _("Saved; the next cycle places by these tiers."))
    return HttpResponseRedirect(f"{request.get_full_path()}{TOP}")


def _show(
    request: PageRequest,
    cluster: Cluster,
    typed: dict[str, object] | None = None,
    status: int = 200,
) -> HttpResponse:
    found = scheduler_configs.in_force(actor=request.actor, cluster_id=cluster.id)
    view = scheduler_queries.scheduler_view(cluster, now=now())
    context = {
        "cluster": cluster,
        "view": view,
        "chart": cycle_chart.chart(view.cycles),
        "config": found,
        "notes": _told(found.notes),
        "versions": scheduler_configs.versions(
            actor=request.actor, cluster_id=cluster.id, limit=20
        ),
        "may_edit": may(request.actor, Verb.SETTINGS_EDIT, None),
        "text": "" if found.is_default and "copy" not in request.GET else found.text,
        "tiers": "\n".join(f"{t.name} {t.label}" for t in network_tiers.tiers_of(view.cluster)),
        **(typed or {}),
    }
    return render_page(request, "cluster/scheduler.html", context, section=SECTION, status=status)
