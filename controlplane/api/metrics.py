"""Numbers for Prometheus: by queue, state and loop, never by job or user.

Queues have the names that Volcano gives them, so that its dashboards work.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator

from django.conf import settings
from django.db.models import Count, Max, Min, Q, Sum
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from scheduling.models import CycleRecord, JobCount, Lease, Node, Queue, QueueShare
from scheduling.models.job import JobPhase
from scheduling.models.node import NodeState
from tenants.domain import tokens
from tenants.domain.access import Verb, load_actor, may
from tenants.models import OutboxRow

MOST_QUEUES = 5000
"""Queues beyond these are left out of the labels; `terrace_queues` tells that they are there."""
CPU, MEMORY = "cpu", "memory"
SHARES = ("allocated", "request", "deserved")
GROUP_PHASES = {
    "pending": (JobPhase.PENDING,),
    "running": (JobPhase.RUNNING, JobPhase.RESTARTING, JobPhase.COMPLETING),
    "completed": (JobPhase.COMPLETED,),
}


class TerraceCollector(Collector):
    """Reads the numbers when they are asked for: nine queries, from sums that are kept anyway."""

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Give every family."""
        yield from _jobs()
        yield from _queues()
        yield from _cluster()
        yield from _outbox()


def _gauge(name: str, help_text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, help_text, labels=labels)


def _jobs() -> Iterator[GaugeMetricFamily]:
    jobs = _gauge("terrace_jobs", "Jobs by phase.", "phase")
    sums = JobCount.objects.values_list("phase").annotate(jobs=Sum("amount")).order_by("phase")
    for phase, count in sums:
        jobs.add_metric([phase], count)
    yield jobs


def _queues() -> Iterator[GaugeMetricFamily]:
    queues = list(Queue.objects.order_by("name").only("id", "name", "weight")[:MOST_QUEUES])
    total = _gauge("terrace_queues", "Queues that there are.")
    total.add_metric([], Queue.objects.count())
    weight = _gauge("volcano_queue_weight", "Weight of a queue.", "queue_name")
    for queue in queues:
        weight.add_metric([queue.name], queue.weight)
    yield total
    yield weight
    yield from _shares(queues)
    yield from _groups({queue.id: queue.name for queue in queues})


def _shares(queues: list[Queue]) -> Iterator[GaugeMetricFamily]:
    families = {
        (share, unit): _gauge(
            f"volcano_queue_{share}_{unit}",
            f"What a queue has as {share}, its subtree included.",
            *(("queue_name", "resource") if unit == "scalar_resources" else ("queue_name",)),
        )
        for share in SHARES
        for unit in ("milli_cpu", "memory_bytes", "scalar_resources")
    }
    ratio = _gauge(
        "volcano_queue_share", "Allocated / deserved where it is greatest.", "queue_name"
    )
    rows = {row.queue_id: row for row in QueueShare.objects.filter(queue__in=queues)}
    for queue in queues:
        row = rows.get(queue.id)
        if row is None:
            continue
        for share, amounts in zip(
            SHARES, (row.allocated, row.requested, row.deserved), strict=True
        ):
            for resource, amount in amounts.items():
                unit = {CPU: "milli_cpu", MEMORY: "memory_bytes"}.get(resource)
                labels = [queue.name] if unit else [queue.name, resource]
                families[share, unit or "scalar_resources"].add_metric(labels, amount)
        ratios = [
            row.allocated.get(resource, 0) / amount
            for resource, amount in row.deserved.items()
            if amount > 0 and resource != "pods"
        ]
        ratio.add_metric([queue.name], max(ratios, default=0.0))
    yield from families.values()
    yield ratio


def _groups(names: dict[object, str]) -> Iterator[GaugeMetricFamily]:
    sums: dict[tuple[object, str], int] = {}
    counted = JobCount.objects.filter(queue__in=list(names)).values_list("queue_id", "phase")
    for queue_id, phase, count in counted.annotate(jobs=Sum("amount")).order_by("queue_id"):
        sums[queue_id, phase] = count
    for state, phases in GROUP_PHASES.items():
        family = _gauge(
            f"volcano_queue_pod_group_{state}_count",
            f"Jobs of a queue that are {state}.",
            "queue_name",
        )
        for queue_id, name in names.items():
            family.add_metric([name], sum(sums.get((queue_id, phase), 0) for phase in phases))
        yield family


def _cluster() -> Iterator[GaugeMetricFamily]:
    nodes = _gauge("terrace_nodes", "Nodes by state.", "state")
    states = Node.objects.exclude(state=NodeState.REMOVED).values_list("state")
    for state, count in states.annotate(nodes=Count("id")).order_by("state"):
        nodes.add_metric([state], count)
    held = _gauge("terrace_lease_held", "1 while a process holds the loop's lease.", "scope")
    epochs = _gauge("terrace_lease_epoch", "How often the lease was taken.", "scope")
    rows = Lease.objects.annotate(is_held=Q(expires_at__gt=Now())).order_by("scope")
    for scope, epoch, is_held in rows.values_list("scope", "epoch", "is_held"):
        held.add_metric([scope], float(is_held))
        epochs.add_metric([scope], epoch)
    cycle = _gauge("terrace_cycle_milliseconds", "How long the last cycle took.", "cluster", "part")
    pending = _gauge("terrace_cycle_pending", "Tasks that the last cycle left waiting.", "cluster")
    newest = CycleRecord.objects.values("cluster").annotate(last=Max("id")).values("last")
    for record in CycleRecord.objects.filter(id__in=newest).select_related("cluster"):
        for part in ("snapshot", "plan", "apply"):
            cycle.add_metric([record.cluster.name, part], getattr(record, f"{part}_ms"))
        pending.add_metric([record.cluster.name], record.pending)
    yield from (nodes, held, epochs, cycle, pending)


def _outbox() -> Iterator[GaugeMetricFamily]:
    found = OutboxRow.objects.aggregate(
        waiting=Count("id", filter=Q(is_dead=False)),
        dead=Count("id", filter=Q(is_dead=True)),
        oldest=Min("created_at", filter=Q(is_dead=False)),
    )
    rows = _gauge("terrace_outbox_rows", "Messages not delivered yet, or given up.", "state")
    rows.add_metric(["waiting"], found["waiting"])
    rows.add_metric(["dead"], found["dead"])
    age = _gauge("terrace_outbox_oldest_seconds", "Age of the oldest message that waits.")
    oldest = found["oldest"]
    age.add_metric([], (timezone.now() - oldest).total_seconds() if oldest else 0.0)
    yield from (rows, age)


_registry = CollectorRegistry(auto_describe=False)
_registry.register(TerraceCollector())


@require_safe
@never_cache
def metrics(request: HttpRequest) -> HttpResponse:
    """Write all numbers for a scraper: with a token that may read settings, or the metrics key.

    Queues' names and loads belong to tenants, so nobody reads them without signing in.
    """
    if not _may_scrape(request):
        reply = JsonResponse(
            {"code": "not_authenticated", "detail": "Send a token that has settings.read."},
            status=401,
        )
        reply["WWW-Authenticate"] = 'Bearer realm="Terrace"'
        return reply
    return HttpResponse(generate_latest(_registry), content_type=CONTENT_TYPE_LATEST)


def _may_scrape(request: HttpRequest) -> bool:
    word, _, secret = request.headers.get("Authorization", "").partition(" ")
    if word.lower() == "bearer":
        key = getattr(settings, "METRICS_KEY", "")
        if key and secrets.compare_digest(secret.encode(), key.encode()):
            return True
        found = tokens.authenticate(secret, timezone.now())
        return found is not None and may(load_actor(*found), Verb.SETTINGS_READ, None)
    return request.user.is_authenticated and may(load_actor(request.user), Verb.SETTINGS_READ, None)
