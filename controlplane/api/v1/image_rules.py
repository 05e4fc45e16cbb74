"""The table that maps images to runtimes of the nodes, read and replaced as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.api import etag
from controlplane.api.base import ApiView
from controlplane.api.fields import ReasonField, StrictSerializer
from controlplane.api.schema import problems, whole_list
from scheduling.domain import images
from scheduling.domain.images import RuleEdit
from scheduling.models import Cluster, ImageRule
from tenants.domain.access import Verb, require
from tenants.domain.errors import NotFound


class ImageRuleOut(serializers.Serializer[Any]):
    """One rule; the first that matches an image decides."""

    position = serializers.IntegerField()
    pattern = serializers.CharField(help_text="Shell-style: `*`, `?`, `[...]`.")
    runtime = serializers.CharField()
    unit_id = serializers.UUIDField(allow_null=True, help_text="Only for jobs of this subtree.")
    unit_name = serializers.SerializerMethodField()

    def get_unit_name(self, rule: ImageRule) -> str | None:
        """Name the unit."""
        return rule.unit.name if rule.unit else None


class ImageRuleIn(StrictSerializer):
    """One rule of the new table; its length is judged with the others."""

    pattern = serializers.CharField(allow_blank=True, trim_whitespace=False)
    runtime = serializers.CharField(allow_blank=True, trim_whitespace=False)
    unit_id = serializers.UUIDField(allow_null=True, default=None)


class ImageRulesIn(StrictSerializer):
    """The whole new table, in the order in which it decides."""

    rules = ImageRuleIn(many=True)
    reason = ReasonField()


class ImageRulesView(ApiView):
    """The table of one cluster; its entity tag is the cluster's version."""

    def load(self, cluster_id: UUID) -> Cluster:
        """Return a cluster.

        Raises:
            NotFound: there is none, or the actor may not see its runtimes.
        """
        require(self.actor, Verb.RUNTIME_READ, None, what="cluster")
        cluster = Cluster.objects.filter(id=cluster_id).first()
        if cluster is None:
            raise NotFound("cluster")
        return cluster

    def reply(self, rules: Sequence[ImageRule], version: int) -> Response:
        """Answer with the table and its entity tag."""
        items = ImageRuleOut(rules, many=True).data
        return Response({"items": items}, headers={"ETag": etag.tag(version)})

    @extend_schema(
        operation_id="image_rules_list",
        responses=problems({200: OpenApiResponse(whole_list(ImageRuleOut))}, 404),
    )
    def get(self, request: Request, cluster_id: UUID) -> Response:
        """List the rules that are in force for you, the first that matches decides."""
        del request
        # The version first: rules that changed in between make the next PUT fail, not overwrite.
        version = self.load(cluster_id).version
        return self.reply(images.rules(actor=self.actor, cluster_id=cluster_id), version)

    @extend_schema(
        operation_id="image_rules_replace",
        request=ImageRulesIn,
        parameters=[OpenApiParameter("If-Match", str, OpenApiParameter.HEADER, required=True)],
        responses=problems(
            {200: OpenApiResponse(whole_list(ImageRuleOut))}, 403, 404, 412, 422, 428
        ),
    )
    def put(self, request: Request, cluster_id: UUID) -> Response:
        """Put a new table in the place of the one that was seen at the version of If-Match."""
        self.load(cluster_id)
        version = etag.required_version(request)
        wanted = self.read(ImageRulesIn)
        edits = [
            RuleEdit(pattern=one["pattern"], runtime=one["runtime"], unit_id=one["unit_id"])
            for one in wanted["rules"]
        ]
        images.replace_rules(
            actor=self.actor,
            cluster_id=cluster_id,
            edits=edits,
            expected_version=version,
            now=self.now,
            reason=wanted["reason"],
        )
        return self.reply(images.rules(actor=self.actor, cluster_id=cluster_id), version + 1)
