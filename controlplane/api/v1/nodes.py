"""Nodes and clusters: what machines there are, taking them in and out, what the scheduler does."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.api import etag, pagination, schema
from controlplane.api.base import ApiView
from controlplane.api.choices import choice
from controlplane.api.fields import ActIn, AmountsField, ReasonField, StrictSerializer
from controlplane.api.schema import listing, problems
from scheduling.domain import node_marks, nodes
from scheduling.domain.deeds import Deed
from scheduling.domain.node_marks import Taint
from scheduling.domain.queries import cluster as cluster_queries
from scheduling.models import Cluster, CycleRecord, Node
from scheduling.models.node import NodeState
from tenants.domain.access import Verb, may, reads, require
from tenants.domain.errors import NotFound

LONGEST_TOKEN_LIFE = 7 * 24 * 3600
MOST_USES = 10_000


class DeviceOut(serializers.Serializer[Any]):
    """One accelerator; `job_id` only where you may read the job."""

    uuid = serializers.CharField(source="device.uuid")
    index = serializers.IntegerField(source="device.index")
    model = serializers.CharField(source="device.model")
    memory_bytes = serializers.IntegerField(source="device.memory_bytes")
    state = serializers.CharField()
    health_reason = serializers.CharField(source="device.health_reason")
    held_milli = serializers.IntegerField()
    gpu_percent = serializers.FloatField(source="percent", allow_null=True)
    used_memory_bytes = serializers.IntegerField(source="memory_bytes", allow_null=True)
    job_id = serializers.SerializerMethodField()

    def get_job_id(self, slot: cluster_queries.Slot) -> UUID | None:
        """Name the job that holds it."""
        return slot.job.id if slot.job else None


class NodeOut(serializers.Serializer[Any]):
    """A machine, what it has and what is held of it; labels and taints for those who manage."""

    id = serializers.UUIDField(source="node.id")
    name = serializers.CharField(source="node.name")
    kind = serializers.CharField(source="node.kind")
    state = serializers.CharField(source="node.state")
    is_schedulable = serializers.BooleanField()
    is_cordoned = serializers.BooleanField(source="node.is_cordoned")
    is_draining = serializers.BooleanField(source="node.is_draining")
    is_simulated = serializers.BooleanField(source="node.is_simulated")
    capacity = AmountsField(source="node.capacity")
    allocatable = AmountsField(source="node.allocatable")
    held = AmountsField()
    cpu_milli = serializers.IntegerField(allow_null=True)
    memory_bytes = serializers.IntegerField(allow_null=True)
    runtimes = serializers.JSONField(source="node.runtimes")
    labels = serializers.SerializerMethodField()
    taints = serializers.SerializerMethodField()
    agent_version = serializers.CharField(source="node.agent_version")
    last_seen_at = serializers.DateTimeField(source="node.last_seen_at", allow_null=True)
    devices = DeviceOut(source="slots", many=True)
    version = serializers.IntegerField(source="node.version")

    def get_labels(self, load: cluster_queries.NodeLoad) -> dict[str, str] | None:
        """Write the labels, null where they are not yours to see."""
        return load.node.labels if self.context["may_read_labels"] else None

    def get_taints(self, load: cluster_queries.NodeLoad) -> list[dict[str, str]] | None:
        """Write the taints, null where they are not yours to see."""
        return load.node.taints if self.context["may_read_labels"] else None


class TaintField(StrictSerializer):
    """A taint; its effect is NoSchedule, PreferNoSchedule or NoExecute."""

    key = serializers.CharField()
    value = serializers.CharField(required=False, allow_blank=True, default="")
    effect = serializers.CharField(required=False, default=node_marks.EFFECTS[0])


class NodeIn(StrictSerializer):
    """What an administrator says of a node; what is left out stays as it is."""

    labels = serializers.DictField(child=serializers.CharField(allow_blank=True), required=False)
    taints = TaintField(many=True, required=False)
    reason = ReasonField()


class NodeView(ApiView):
    """Base of the views of nodes."""

    def written(self, found: list[Node]) -> list[dict[str, Any]]:
        """Write nodes with what is held and measured on them."""
        loads = cluster_queries.node_loads(reads(self.actor, Verb.JOB_READ), found, now=self.now)
        context = {"may_read_labels": may(self.actor, Verb.NODE_LABELS, None)}
        return list(NodeOut(loads, many=True, context=context).data)

    def load(self, node_id: UUID) -> Node:
        """Return a node that is not removed.

        Raises:
            NotFound: there is none, or the actor may see none.
        """
        require(self.actor, Verb.NODE_READ, None, what="node")
        node = Node.objects.exclude(state=NodeState.REMOVED).filter(id=node_id).first()
        if node is None:
            raise NotFound("node")
        return node


class NodesView(NodeView):
    """The nodes."""

    @extend_schema(
        operation_id="nodes_list",
        parameters=[OpenApiParameter("cluster"), OpenApiParameter("state", enum=NodeState.values)],
        responses=problems({200: listing(NodeOut)}, 404, 422),
    )
    def get(self, request: Request) -> Response:
        """List nodes by name."""
        require(self.actor, Verb.NODE_READ, None, what="node")
        found = Node.objects.exclude(state=NodeState.REMOVED)
        if cluster := request.query_params.get("cluster"):
            found = found.filter(cluster__name=cluster)
        if state := choice(request, "state", NodeState.values):
            found = found.filter(state=state)
        items, after = pagination.page(found, ("name", "id"), request)
        return self.listed(self.written(items), after)


class NodeDetailView(NodeView):
    """One node."""

    def reply(self, node: Node) -> Response:
        """Answer with a node and its entity tag."""
        return Response(self.written([node])[0], headers={"ETag": etag.tag(node.version)})

    @extend_schema(operation_id="nodes_read", responses=problems({200: NodeOut}, 404))
    def get(self, request: Request, node_id: UUID) -> Response:
        """Show one node."""
        del request
        return self.reply(self.load(node_id))

    @extend_schema(
        operation_id="nodes_update",
        request=NodeIn,
        parameters=[OpenApiParameter("If-Match", str, OpenApiParameter.HEADER, required=True)],
        responses=problems({200: NodeOut}, 403, 404, 412, 422, 428),
    )
    def patch(self, request: Request, node_id: UUID) -> Response:
        """Replace its labels or taints, as it was seen at the version of If-Match."""
        self.load(node_id)
        wanted = self.read(NodeIn)
        taints = wanted.get("taints")
        node = node_marks.edit(
            deed=Deed(self.actor, self.now, wanted["reason"], self.request_id),
            node_id=node_id,
            labels=wanted.get("labels"),
            taints=None if taints is None else [Taint(**one) for one in taints],
            expected_version=etag.required_version(request),
        )
        return self.reply(node)


class NodeActionView(NodeView):
    """An action on one node."""

    act: Callable[..., Node] = staticmethod(nodes.cordon)

    @extend_schema(request=ActIn, responses=problems({200: NodeOut}, 403, 404, 409, 422))
    def post(self, request: Request, node_id: UUID) -> Response:
        """Do it."""
        del request
        wanted = self.read(ActIn)

        def act() -> tuple[int, dict[str, Any]]:
            self.load(node_id)
            node = self.act(
                actor=self.actor, node_id=node_id, now=self.now, reason=wanted["reason"]
            )
            return 200, self.written([node])[0]

        return self.once(act)


class JoinTokenIn(StrictSerializer):
    """How a machine may join."""

    cluster = serializers.CharField(required=False, default="")
    uses = serializers.IntegerField(min_value=1, max_value=MOST_USES, default=1)
    valid_for_seconds = serializers.IntegerField(
        min_value=60, max_value=LONGEST_TOKEN_LIFE, default=3600
    )
    labels = serializers.DictField(child=serializers.CharField(max_length=253), required=False)


class JoinTokenOut(serializers.Serializer[Any]):
    """A token with which machines join; `secret` is shown only in the first reply."""

    id = serializers.UUIDField()
    cluster = serializers.CharField()
    uses_left = serializers.IntegerField()
    expires_at = serializers.DateTimeField()
    secret = serializers.CharField(required=False)


class JoinTokensView(ApiView):
    """Tokens with which machines become nodes."""

    @extend_schema(
        operation_id="join_tokens_create",
        request=JoinTokenIn,
        responses=problems({201: JoinTokenOut}, 403, 404, 422),
    )
    def post(self, request: Request) -> Response:
        """Make a token; its secret is in this reply and nowhere else."""
        del request
        wanted = self.read(JoinTokenIn)
        require(self.actor, Verb.NODE_READ, None, what="cluster")
        cluster = cluster_queries.load_cluster(wanted["cluster"])
        secrets: list[str] = []

        def create() -> tuple[int, dict[str, Any]]:
            token, secret = nodes.join_token_create(
                actor=self.actor,
                cluster=cluster,
                now=self.now,
                valid_for=timedelta(seconds=wanted["valid_for_seconds"]),
                uses=wanted["uses"],
                labels=wanted.get("labels"),
            )
            secrets.append(secret)
            return 201, {
                "id": str(token.id),
                "cluster": cluster.name,
                "uses_left": token.uses_left,
                "expires_at": token.expires_at,
            }

        reply = self.once(create)
        if secrets:
            reply.data = {**reply.data, "secret": secrets[0]}
        return reply


class ClusterOut(serializers.Serializer[Any]):
    """A cluster; its scheduler's configuration has an address of its own."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    config_problem = serializers.CharField()
    has_scheduler = serializers.SerializerMethodField()
    created_at = serializers.DateTimeField()
    version = serializers.IntegerField()

    def get_has_scheduler(self, cluster: Cluster) -> bool:
        """Tell whether a process holds the scheduler's lease."""
        return cluster.id not in self.context["absent"]


class CycleOut(serializers.Serializer[Any]):
    """What one cycle did."""

    number = serializers.IntegerField()
    epoch = serializers.IntegerField()
    started_at = serializers.DateTimeField()
    snapshot_ms = serializers.FloatField()
    plan_ms = serializers.FloatField()
    apply_ms = serializers.FloatField()
    binds = serializers.IntegerField()
    evictions = serializers.IntegerField()
    rejected = serializers.IntegerField()
    pending = serializers.IntegerField()
    error = serializers.CharField()


class ClustersView(ApiView):
    """The clusters."""

    @extend_schema(
        operation_id="clusters_list",
        responses=problems({200: schema.whole_list(ClusterOut)}, 404),
    )
    def get(self, request: Request) -> Response:
        """List clusters, and whether a scheduler plans for them now."""
        del request
        require(self.actor, Verb.CLUSTER_READ, None, what="cluster")
        absent = {cluster.id for cluster in cluster_queries.clusters_without_scheduler()}
        rows = Cluster.objects.order_by("created_at", "id")
        return Response({"items": ClusterOut(rows, many=True, context={"absent": absent}).data})


class CyclesView(ApiView):
    """The cycles of a cluster."""

    @extend_schema(
        operation_id="cycles_list", responses=problems({200: listing(CycleOut)}, 403, 404, 422)
    )
    def get(self, request: Request, cluster_id: UUID) -> Response:
        """List cycles, the newest first."""
        require(self.actor, Verb.SETTINGS_READ, None, what="cluster")
        if not Cluster.objects.filter(id=cluster_id).exists():
            raise NotFound("cluster")
        rows = CycleRecord.objects.filter(cluster_id=cluster_id)
        items, after = pagination.page(rows, ("-number",), request)
        return self.listed(list(CycleOut(items, many=True).data), after)
