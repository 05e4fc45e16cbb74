"""A cluster's scheduler configuration and network tiers: read, checked, replaced, versions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.api import etag
from controlplane.api.base import ApiView
from controlplane.api.errors import field_errors
from controlplane.api.fields import ReasonField, StrictSerializer
from controlplane.api.schema import problems, whole_list
from controlplane.api.v1.queues import preview_document
from scheduling.domain import network_tiers, queue_preview, scheduler_configs
from scheduling.domain.placement_rules import Tier
from scheduling.domain.scheduler_configs import InForce
from scheduling.models import Cluster, SchedulerConfig
from tenants.domain.access import Verb, require
from tenants.domain.errors import NotFound


class SchedulerConfigOut(serializers.Serializer[Any]):
    """What the next cycle goes by."""

    text = serializers.CharField(help_text="YAML as Volcano's scheduler configuration.")
    is_default = serializers.BooleanField()
    version = serializers.IntegerField()
    problem = serializers.CharField()
    notes = serializers.SerializerMethodField(
        help_text="What the text says that changes nothing; of a dry run what the text sent says."
    )

    effect = serializers.DictField(
        required=False, help_text="Of a dry run: what the next cycle would do, as `queues:preview`."
    )

    def get_notes(self, found: InForce) -> list[dict[str, str]]:
        """Write each with its place."""
        return field_errors(found.notes)


class SchedulerConfigIn(StrictSerializer):
    """The new configuration; an empty text puts the default in force."""

    text = serializers.CharField(allow_blank=True, trim_whitespace=False)
    dry_run = serializers.BooleanField(default=False, help_text="Only check it.")
    reason = ReasonField()


class ConfigVersionOut(serializers.Serializer[Any]):
    """A version that was in force."""

    number = serializers.IntegerField()
    text = serializers.CharField()
    author = serializers.SerializerMethodField()
    reason = serializers.CharField()
    created_at = serializers.DateTimeField()

    def get_author(self, row: SchedulerConfig) -> str | None:
        """Name who wrote it."""
        return row.author.username if row.author else None


class TierField(StrictSerializer):
    """One tier; nodes with one value of the label lie together."""

    name = serializers.CharField(max_length=63)
    label = serializers.CharField(max_length=317)  # type: ignore[assignment]  # DRF's own `label` is an argument's name only


class NetworkTiersIn(StrictSerializer):
    """All tiers, the nearest first."""

    tiers = TierField(many=True)
    reason = ReasonField()


class NetworkTiersOut(serializers.Serializer[Any]):
    """All tiers, the nearest first."""

    tiers = TierField(many=True)


class NetworkTiersView(ApiView):
    """The tiers of a cluster's network; their entity tag is the cluster's version."""

    def reply(self, cluster_id: UUID) -> Response:
        """Answer with the tiers and their entity tag."""
        require(self.actor, Verb.CLUSTER_READ, None, what="cluster")
        cluster = Cluster.objects.filter(id=cluster_id).first()
        if cluster is None:
            raise NotFound("cluster")
        data = NetworkTiersOut({"tiers": network_tiers.tiers_of(cluster)}).data
        return Response(data, headers={"ETag": etag.tag(cluster.version)})

    @extend_schema(
        operation_id="network_tiers_read", responses=problems({200: NetworkTiersOut}, 404)
    )
    def get(self, request: Request, cluster_id: UUID) -> Response:
        """Read which labels of the nodes draw the network."""
        del request
        return self.reply(cluster_id)

    @extend_schema(
        operation_id="network_tiers_replace",
        request=NetworkTiersIn,
        parameters=[OpenApiParameter("If-Match", str, OpenApiParameter.HEADER, required=True)],
        responses=problems({200: NetworkTiersOut}, 403, 404, 412, 422, 428),
    )
    def put(self, request: Request, cluster_id: UUID) -> Response:
        """Put other tiers in force from the next cycle on."""
        require(self.actor, Verb.SETTINGS_EDIT, None, what="cluster")
        version = etag.required_version(request)
        wanted = self.read(NetworkTiersIn)
        network_tiers.edit(
            actor=self.actor,
            cluster_id=cluster_id,
            tiers=[Tier(one["name"], one["label"]) for one in wanted["tiers"]],
            expected_version=version,
            now=self.now,
            reason=wanted["reason"],
        )
        return self.reply(cluster_id)


class SchedulerConfigView(ApiView):
    """The configuration of one cluster; its entity tag is the cluster's version."""

    def reply(self, found: InForce, **more: object) -> Response:
        """Answer with the configuration, what else there is to say, and its entity tag."""
        data = SchedulerConfigOut(found).data | more
        return Response(data, headers={"ETag": etag.tag(found.version)})

    @extend_schema(
        operation_id="scheduler_config_read",
        responses=problems({200: SchedulerConfigOut}, 404),
    )
    def get(self, request: Request, cluster_id: UUID) -> Response:
        """Read the configuration that the next cycle goes by."""
        del request
        return self.reply(scheduler_configs.in_force(actor=self.actor, cluster_id=cluster_id))

    @extend_schema(
        operation_id="scheduler_config_replace",
        request=SchedulerConfigIn,
        parameters=[OpenApiParameter("If-Match", str, OpenApiParameter.HEADER, required=True)],
        responses=problems({200: SchedulerConfigOut}, 403, 404, 412, 422, 428),
    )
    def put(self, request: Request, cluster_id: UUID) -> Response:
        """Put a new one in force in the place of the one that was seen at If-Match's version."""
        scheduler_configs.in_force(actor=self.actor, cluster_id=cluster_id)
        version = etag.required_version(request)
        wanted = self.read(SchedulerConfigIn)
        if wanted["dry_run"]:
            notes = scheduler_configs.check(actor=self.actor, text=wanted["text"])
            seen = scheduler_configs.in_force(actor=self.actor, cluster_id=cluster_id)
            effect = queue_preview.preview_config(
                actor=self.actor, cluster_id=cluster_id, text=wanted["text"], now=self.now
            )
            found = replace(seen, notes=tuple(notes))
            return self.reply(found, effect=preview_document(effect))
        scheduler_configs.edit(
            actor=self.actor,
            cluster_id=cluster_id,
            text=wanted["text"],
            expected_version=version,
            now=self.now,
            reason=wanted["reason"],
        )
        return self.reply(scheduler_configs.in_force(actor=self.actor, cluster_id=cluster_id))


class SchedulerConfigVersionsView(ApiView):
    """The versions of a cluster's configuration."""

    @extend_schema(
        operation_id="scheduler_config_versions",
        responses=problems({200: OpenApiResponse(whole_list(ConfigVersionOut))}, 404),
    )
    def get(self, request: Request, cluster_id: UUID) -> Response:
        """List the newest 50 versions, the newest first."""
        del request
        scheduler_configs.in_force(actor=self.actor, cluster_id=cluster_id)
        rows = scheduler_configs.versions(actor=self.actor, cluster_id=cluster_id)
        return Response({"items": ConfigVersionOut(rows, many=True).data})
