"""Queues: the tree, one queue, changes of one or several at once, and their effect before."""

from __future__ import annotations

import dataclasses
from typing import Any
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.api import etag, schema
from controlplane.api.base import ApiView
from controlplane.api.errors import document_of, field_errors
from controlplane.api.fields import ActIn, AmountsField, AmountsIn, ReasonField, StrictSerializer
from controlplane.api.schema import problems
from controlplane.api.v1.jobs import plain
from scheduling.domain import (
    change_sets,
    queue_draining,
    queue_placement,
    queue_preview,
    queues,
)
from scheduling.domain.deeds import Deed
from scheduling.domain.queries import cluster as cluster_queries
from scheduling.domain.queries import queues as queue_queries
from scheduling.domain.queue_changes import QueueEdit, QueueNumbers
from scheduling.domain.queue_draining import Running, Waiting
from scheduling.domain.queue_placement import NodeGroups
from scheduling.models.queue import QueuePolicy

MOST_EDITS = 1000
LARGEST_WEIGHT = 65_535


class QueueOut(serializers.Serializer[Any]):
    """A queue; of what lies above your units only name and place are shown."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    parent_id = serializers.UUIDField(allow_null=True)
    depth = serializers.IntegerField()
    is_path_only = serializers.BooleanField()
    is_leaf = serializers.BooleanField()
    unit_id = serializers.UUIDField(allow_null=True)
    unit_name = serializers.CharField()
    min = AmountsField()
    max = AmountsField()
    weight = serializers.IntegerField(allow_null=True)
    weight_share = serializers.FloatField(allow_null=True)
    priority = serializers.IntegerField()
    lend_min = serializers.BooleanField()
    reclaimable = serializers.BooleanField()
    policy = serializers.CharField()
    are_logs_shared = serializers.BooleanField()
    state = serializers.CharField()
    is_closed_by_parent = serializers.BooleanField()
    version = serializers.IntegerField()
    deserved = AmountsField(allow_null=True)
    allocated = AmountsField(allow_null=True)
    requested = AmountsField(allow_null=True)
    share_ratio = serializers.FloatField(allow_null=True)
    share_at = serializers.DateTimeField(allow_null=True)
    waiting = serializers.IntegerField()
    running = serializers.IntegerField()
    may_edit = serializers.BooleanField()
    may_submit = serializers.BooleanField()


class QueueDetailOut(QueueOut):
    """A queue with its place in the tree."""

    path = serializers.ListField(child=serializers.CharField())
    children = QueueOut(many=True)


class NumbersIn(StrictSerializer):
    """What the manager of the parent decides of a queue; what is left out stays as it is."""

    min = AmountsIn(required=False)
    max = AmountsIn(required=False)
    weight = serializers.IntegerField(min_value=1, max_value=LARGEST_WEIGHT, required=False)
    priority = serializers.IntegerField(min_value=0, max_value=2**31 - 1, required=False)
    lend_min = serializers.BooleanField(required=False)
    reclaimable = serializers.BooleanField(required=False)
    policy = serializers.ChoiceField(QueuePolicy.choices, required=False)
    are_logs_shared = serializers.BooleanField(required=False)
    reason = ReasonField()


class QueueIn(NumbersIn):
    """A new queue: the share of an org unit below another queue."""

    name = serializers.CharField(max_length=253)
    parent_id = serializers.UUIDField()
    unit_id = serializers.UUIDField()


class EditIn(NumbersIn):
    """One of several changes, of a queue as it was seen at a version."""

    id = serializers.UUIDField()
    version = serializers.IntegerField(min_value=1)
    base = serializers.DictField(required=False, help_text="The values that were seen.")


class EditsIn(StrictSerializer):
    """Changes that are made together or not at all."""

    edits = serializers.ListField(child=EditIn(), max_length=MOST_EDITS)
    reason = ReasonField()


class QueueView(ApiView):
    """Base of the views of queues."""

    def written(self, queue_id: UUID) -> tuple[dict[str, Any], int]:
        """Write a queue as it is now; return it with its version."""
        found = queue_queries.detail(self.actor, queue_id)
        document = dict(QueueOut(found.row).data) | {
            "path": list(found.path),
            "children": list(QueueOut(found.children, many=True).data),
        }
        return document, found.row.version

    def reply(self, queue_id: UUID, status: int = 200) -> Response:
        """Answer with a queue and its entity tag."""
        document, version = self.written(queue_id)
        return Response(document, status=status, headers={"ETag": etag.tag(version)})


class QueuesView(QueueView):
    """The tree of a cluster."""

    @extend_schema(
        operation_id="queues_list",
        parameters=[OpenApiParameter("cluster", description="By default the first one.")],
        responses=problems({200: schema.whole_list(QueueOut)}, 404),
    )
    def get(self, request: Request) -> Response:
        """List the queues that you may see, each parent before its children."""
        cluster = cluster_queries.load_cluster(request.query_params.get("cluster", ""))
        rows = queue_queries.tree(self.actor, cluster.id)
        return Response({"items": QueueOut(rows, many=True).data})

    @extend_schema(
        operation_id="queues_create",
        request=QueueIn,
        responses=problems({201: QueueDetailOut}, 403, 404, 409, 422),
    )
    def post(self, request: Request) -> Response:
        """Make a queue for an org unit; its numbers belong to the manager of the parent."""
        del request
        wanted = self.read(QueueIn)

        def create() -> tuple[int, dict[str, Any]]:
            queue = queues.create_queue(
                actor=self.actor,
                parent_id=wanted["parent_id"],
                unit_id=wanted["unit_id"],
                name=wanted["name"],
                numbers=QueueNumbers(**_numbers(wanted)),
                now=self.now,
                reason=wanted["reason"],
                request_id=self.request_id,
            )
            return 201, self.written(queue.id)[0]

        return self.once(create)


class QueueDetailView(QueueView):
    """One queue."""

    @extend_schema(operation_id="queues_read", responses=problems({200: QueueDetailOut}, 404))
    def get(self, request: Request, queue_id: UUID) -> Response:
        """Show a queue with its path and children."""
        del request
        return self.reply(queue_id)

    @extend_schema(
        operation_id="queues_update",
        request=NumbersIn,
        parameters=[OpenApiParameter("If-Match", str, OpenApiParameter.HEADER, required=True)],
        responses=problems({200: QueueDetailOut}, 403, 404, 409, 412, 422, 428),
    )
    def patch(self, request: Request, queue_id: UUID) -> Response:
        """Change a queue as it was seen at the version of If-Match."""
        wanted = self.read(NumbersIn)
        edit = QueueEdit(
            queue_id=queue_id,
            expected_version=etag.required_version(request),
            **_numbers(wanted),
        )
        change_sets.edit_now(
            actor=self.actor,
            edits=[edit],
            now=self.now,
            reason=wanted["reason"],
            request_id=self.request_id,
        )
        return self.reply(queue_id)

    @extend_schema(
        operation_id="queues_delete",
        parameters=[OpenApiParameter("If-Match", str, OpenApiParameter.HEADER, required=True)],
        responses=problems({204: None}, 403, 404, 409, 412, 422, 428),
    )
    def delete(self, request: Request, queue_id: UUID) -> Response:
        """Delete a closed queue that never had jobs."""
        queues.delete_queue(
            actor=self.actor,
            queue_id=queue_id,
            expected_version=etag.required_version(request),
            now=self.now,
            request_id=self.request_id,
        )
        return Response(status=204)


class QueueStateView(QueueView):
    """Whether a queue takes new jobs."""

    is_open: bool = True

    @extend_schema(
        request=ActIn, responses=problems({200: QueueDetailOut}, 403, 404, 409, 412, 422)
    )
    def post(self, request: Request, queue_id: UUID) -> Response:
        """Open a queue, or close it and those below it; what runs goes on."""
        wanted = self.read(ActIn)
        change = queues.open_queue if self.is_open else queues.close_queue

        def act() -> tuple[int, dict[str, Any]]:
            change(
                actor=self.actor,
                queue_id=queue_id,
                expected_version=etag.expected_version(request),
                now=self.now,
                reason=wanted["reason"],
                request_id=self.request_id,
            )
            return 200, self.written(queue_id)[0]

        return self.once(act)


class NodeGroupsField(StrictSerializer):
    """Groups of nodes, by the value of their label `volcano.sh/nodegroup-name`."""

    required = serializers.ListField(  # type: ignore[assignment]  # DRF's own `required` is an argument's name only
        child=serializers.CharField(), default=list
    )
    preferred = serializers.ListField(child=serializers.CharField(), default=list)
    avoided = serializers.ListField(child=serializers.CharField(), default=list)
    forbidden = serializers.ListField(child=serializers.CharField(), default=list)
    limits = serializers.DictField(
        child=AmountsField(), default=dict, help_text="Group -> what all its jobs hold there."
    )


class NodeGroupsIn(NodeGroupsField):
    """Groups of nodes, as they are stated."""

    limits = serializers.DictField(
        child=AmountsIn(), default=dict, help_text="Group -> what all its jobs hold there."
    )


class PlacementIn(StrictSerializer):
    """Where a queue's jobs may run, and what it is stated to deserve; what is left out is none."""

    node_groups = NodeGroupsIn(default=dict)
    stated_deserved = AmountsIn(allow_null=True, default=None)
    reason = ReasonField()


class PlacementOut(serializers.Serializer[Any]):
    """What the plugins `nodegroup` and `capacity` read of a queue."""

    node_groups = NodeGroupsField()
    stated_deserved = AmountsField(allow_null=True)


class QueuePlacementView(QueueView):
    """Where a queue's jobs may run; its entity tag is the queue's version."""

    def reply(self, queue_id: UUID, status: int = 200) -> Response:
        """Answer with what is stated and the entity tag."""
        found = queue_queries.placement(self.actor, queue_id)
        tag = {"ETag": etag.tag(found.version)}
        return Response(PlacementOut(found).data, status=status, headers=tag)

    @extend_schema(
        operation_id="queues_placement_read", responses=problems({200: PlacementOut}, 404)
    )
    def get(self, request: Request, queue_id: UUID) -> Response:
        """Show the groups of nodes and the stated amounts of a queue."""
        del request
        return self.reply(queue_id)

    @extend_schema(
        operation_id="queues_placement_replace",
        request=PlacementIn,
        parameters=[OpenApiParameter("If-Match", str, OpenApiParameter.HEADER, required=True)],
        responses=problems({200: PlacementOut}, 403, 404, 412, 422, 428),
    )
    def put(self, request: Request, queue_id: UUID) -> Response:
        """State them anew, as the queue was seen at the version of If-Match."""
        wanted = self.read(PlacementIn)
        queue_placement.edit(
            deed=Deed(self.actor, self.now, wanted["reason"], self.request_id),
            queue_id=queue_id,
            node_groups=NodeGroups(**_groups(wanted["node_groups"])),
            stated_deserved=wanted["stated_deserved"],
            expected_version=etag.required_version(request),
        )
        return self.reply(queue_id)


def _groups(wanted: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(v) if isinstance(v, list) else v for name, v in wanted.items()}


class DrainIn(StrictSerializer):
    """What happens to the jobs of a queue that is closed."""

    waiting = serializers.ChoiceField([one.value for one in Waiting], default=Waiting.KEEP.value)
    running = serializers.ChoiceField([one.value for one in Running], default=Running.KEEP.value)
    target_id = serializers.UUIDField(required=False, allow_null=True, default=None)
    reason = ReasonField()


class QueueDrainView(QueueView):
    """A queue taken out of service."""

    @extend_schema(
        operation_id="queues_drain",
        request=DrainIn,
        responses=problems({200: schema.DocumentOut}, 403, 404, 409, 412, 422),
    )
    def post(self, request: Request, queue_id: UUID) -> Response:
        """Close it and all below; move or cancel its jobs. Sent again, it goes on with the rest."""
        wanted = self.read(DrainIn)

        def act() -> tuple[int, dict[str, Any]]:
            result = queue_draining.drain(
                actor=self.actor,
                queue_id=queue_id,
                waiting=Waiting(wanted["waiting"]),
                running=Running(wanted["running"]),
                target_id=wanted["target_id"],
                expected_version=etag.expected_version(request),
                now=self.now,
                reason=wanted["reason"],
                request_id=self.request_id,
            )
            refused = [
                {"job_id": str(one.job_id), **document_of(one.error)}
                for one in result.refused
                if one.error is not None
            ]
            return 200, {"done": result.done, "left": result.left, "refused": refused}

        return self.once(act)


class QueueTreeView(QueueView):
    """Several queues at once."""

    @extend_schema(
        operation_id="queues_tree_update",
        request=EditsIn,
        responses=problems({200: schema.whole_list(QueueOut)}, 403, 404, 409, 412, 422),
    )
    def patch(self, request: Request) -> Response:
        """Change several queues together, or none of them."""
        del request
        wanted = self.read(EditsIn)
        changed = change_sets.edit_now(
            actor=self.actor,
            edits=edits_of_body(wanted),
            now=self.now,
            reason=wanted["reason"],
            request_id=self.request_id,
        )
        ids = {queue.id for queue in changed}
        rows = queue_queries.tree(self.actor, changed[0].cluster_id) if changed else []
        shown = [row for row in rows if row.id in ids]
        return Response({"items": QueueOut(shown, many=True).data})


class QueuePreviewView(QueueView):
    """What a change would do."""

    @extend_schema(
        operation_id="queues_preview",
        request=EditsIn,
        responses=problems({200: schema.DocumentOut}, 403, 404, 412, 422),
    )
    def post(self, request: Request) -> Response:
        """Say what each queue would deserve, and which tasks would start or be evicted."""
        del request
        found = queue_preview.preview_edits(
            actor=self.actor, edits=edits_of_body(self.read(EditsIn)), now=self.now
        )
        return Response(preview_document(found))


def preview_document(found: queue_preview.Preview) -> dict[str, Any]:
    """Write the effect of a change."""
    document = {
        field.name: plain(getattr(found, field.name)) for field in dataclasses.fields(found)
    }
    return document | {
        "shares": [plain(one) | {"is_changed": one.is_changed} for one in found.shares],
        "sums": [plain(one) | {"is_broken": one.is_broken} for one in found.sums],
        "warnings": field_errors(found.warnings),
    }


def _numbers(wanted: dict[str, Any]) -> dict[str, Any]:
    """Return the stated fields of `QueueNumbers`."""
    names = {field.name for field in dataclasses.fields(QueueNumbers)}
    return {name: value for name, value in wanted.items() if name in names}


def edits_of_body(wanted: dict[str, Any]) -> list[QueueEdit]:
    """Return the edits of a body that was read with `EditIn`."""
    return [
        QueueEdit(
            queue_id=one["id"],
            expected_version=one["version"],
            base=one.get("base"),
            **_numbers(one),
        )
        for one in wanted["edits"]
    ]
