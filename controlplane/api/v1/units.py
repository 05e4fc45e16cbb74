"""Org units: the tree, one unit, its changes and their effect before."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.api import etag, pagination
from controlplane.api.base import ApiView
from controlplane.api.fields import ReasonField, StrictSerializer
from controlplane.api.schema import listing, problems
from controlplane.api.v1.jobs import plain
from scheduling.domain import org_preview, unit_queues
from scheduling.domain.deeds import Deed
from scheduling.domain.org_preview import UnitChange, UnitEffect, UnitRequest
from tenants.domain import org
from tenants.domain.access import Verb, reads, require
from tenants.models import OrgClosure, OrgUnit, OrgUnitKind


class UnitOut(serializers.Serializer[Any]):
    """An org unit."""

    id = serializers.UUIDField()
    parent_id = serializers.UUIDField(allow_null=True)
    tenant_id = serializers.UUIDField()
    name = serializers.CharField()
    kind = serializers.CharField()
    is_archived = serializers.BooleanField()
    created_at = serializers.DateTimeField()
    version = serializers.IntegerField()


class UnitIn(StrictSerializer):
    """A new org unit; without a parent, a tenant."""

    name = serializers.CharField(max_length=100)
    kind = serializers.ChoiceField(OrgUnitKind.choices, default=OrgUnitKind.TEAM.value)
    parent_id = serializers.UUIDField(required=False, allow_null=True, default=None)
    reason = ReasonField()


class UnitPatchIn(StrictSerializer):
    """One change of a unit: its name, its parent, or whether it is archived."""

    name = serializers.CharField(max_length=100, required=False)
    parent_id = serializers.UUIDField(required=False)
    is_archived = serializers.BooleanField(required=False)
    reason = ReasonField()

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Want one change: each has its own right and its own line in the audit trail."""
        if len(attrs.keys() & {"name", "parent_id", "is_archived"}) != 1:
            raise serializers.ValidationError(
                "Change one of name, parent_id and is_archived at a time.", "one_of"
            )
        return attrs


class UnitView(ApiView):
    """Base of the views of units."""

    def load(self, unit_id: UUID) -> OrgUnit:
        """Return a unit that the actor may read.

        Raises:
            NotFound: there is none.
        """
        require(self.actor, Verb.ORG_READ, unit_id, what="org unit")
        return OrgUnit.objects.get(id=unit_id)

    def _deed(self, reason: str = "") -> Deed:
        return Deed(self.actor, self.now, reason, self.request_id)

    def reply(self, unit: OrgUnit, status: int = 200) -> Response:
        """Answer with a unit and its entity tag."""
        headers = {"ETag": etag.tag(unit.version)}
        return Response(UnitOut(unit).data, status=status, headers=headers)


class UnitsView(UnitView):
    """The org units."""

    @extend_schema(operation_id="units_list", responses=problems({200: listing(UnitOut)}, 422))
    def get(self, request: Request) -> Response:
        """List the units that you may read."""
        scope = reads(self.actor, Verb.ORG_READ)
        units = OrgUnit.objects.all()
        if not scope.sees_everything:
            below = OrgClosure.objects.filter(ancestor__in=scope.readable_units)
            units = units.filter(id__in=below.values("descendant_id"))
        items, after = pagination.page(units, ("name", "id"), request)
        return self.listed(list(UnitOut(items, many=True).data), after)

    @extend_schema(
        operation_id="units_create",
        request=UnitIn,
        responses=problems({201: UnitOut}, 403, 404, 409, 422),
    )
    def post(self, request: Request) -> Response:
        """Make a unit."""
        del request
        wanted = self.read(UnitIn)

        def create() -> tuple[int, dict[str, Any]]:
            unit = org.create_unit(
                actor=self.actor,
                parent_id=wanted["parent_id"],
                name=wanted["name"],
                kind=OrgUnitKind(wanted["kind"]),
                now=self.now,
                reason=wanted["reason"],
                request_id=self.request_id,
            )
            return 201, dict(UnitOut(unit).data)

        return self.once(create)


class UnitDetailView(UnitView):
    """One org unit."""

    @extend_schema(operation_id="units_read", responses=problems({200: UnitOut}, 404))
    def get(self, request: Request, unit_id: UUID) -> Response:
        """Show one unit."""
        del request
        return self.reply(self.load(unit_id))

    @extend_schema(
        operation_id="units_update",
        request=UnitPatchIn,
        parameters=[OpenApiParameter("If-Match", str, OpenApiParameter.HEADER, required=True)],
        responses=problems({200: UnitOut}, 403, 404, 409, 412, 422, 428),
    )
    def patch(self, request: Request, unit_id: UUID) -> Response:
        """Rename, move, archive or restore a unit; its queues move along."""
        wanted = self.read(UnitPatchIn)
        self.load(unit_id)
        version = etag.required_version(request)
        if "name" in wanted:
            asked = UnitRequest(UnitChange.RENAME, unit_id, version, name=wanted["name"])
        elif "parent_id" in wanted:
            asked = UnitRequest(UnitChange.MOVE, unit_id, version, target_id=wanted["parent_id"])
        elif wanted["is_archived"]:
            asked = UnitRequest(UnitChange.ARCHIVE, unit_id, version)
        else:
            asked = UnitRequest(UnitChange.RESTORE, unit_id, version)
        unit = org_preview.apply_unit_change(self._deed(wanted["reason"]), asked)
        return self.reply(unit)


class PersonChangeOut(serializers.Serializer[Any]):
    """Somebody whose roles become others; an empty name is not yours to see."""

    username = serializers.CharField(allow_blank=True)
    before = serializers.ListField(child=serializers.CharField())
    after = serializers.ListField(child=serializers.CharField())


class QueueMoveOut(serializers.Serializer[Any]):
    """A queue that changes its place, unit or state; it is deleted if `state_after` is empty."""

    cluster = serializers.CharField()
    queue = serializers.CharField()
    parent_before = serializers.CharField(allow_blank=True)
    parent_after = serializers.CharField(allow_blank=True)
    unit_before = serializers.CharField(allow_blank=True)
    unit_after = serializers.CharField(allow_blank=True)
    state_before = serializers.CharField()
    state_after = serializers.CharField(allow_blank=True)
    waiting = serializers.IntegerField()
    running = serializers.IntegerField()


class ClusterEffectOut(serializers.Serializer[Any]):
    """What the scheduler would do differently in a cluster, as `queues:preview` says it."""

    cluster = serializers.CharField()
    preview = serializers.DictField()


class UnitEffectOut(serializers.Serializer[Any]):
    """What a change of a unit does; `people` have other roles on what the unit has."""

    change = serializers.CharField()
    units = serializers.IntegerField()
    people = PersonChangeOut(many=True)
    people_of_target = PersonChangeOut(many=True)
    queues = QueueMoveOut(many=True)
    clusters = ClusterEffectOut(many=True)


class UnitPreviewIn(StrictSerializer):
    """A change of a unit: `name` to rename it, `target_id` to move or merge it."""

    change = serializers.ChoiceField([one.value for one in UnitChange])
    name = serializers.CharField(max_length=100, required=False, default="")
    target_id = serializers.UUIDField(required=False, allow_null=True, default=None)


class UnitPreviewView(UnitView):
    """What a change of a unit would do."""

    @extend_schema(
        operation_id="units_preview",
        request=UnitPreviewIn,
        parameters=[OpenApiParameter("If-Match", str, OpenApiParameter.HEADER)],
        responses=problems({200: UnitEffectOut}, 403, 404, 409, 412, 422),
    )
    def post(self, request: Request, unit_id: UUID) -> Response:
        """Say whose view and which queues change; nothing is written."""
        wanted = self.read(UnitPreviewIn)
        unit = self.load(unit_id)
        effect = org_preview.preview_unit(
            deed=self._deed(),
            wanted=UnitRequest(
                change=UnitChange(wanted["change"]),
                unit_id=unit_id,
                expected_version=etag.expected_version(request) or unit.version,
                name=wanted["name"],
                target_id=wanted["target_id"],
            ),
        )
        return Response(_written(effect))


class UnitMergeIn(StrictSerializer):
    """The unit that takes over."""

    into_id = serializers.UUIDField()
    reason = ReasonField()


class UnitMergeView(UnitView):
    """One unit merged into another."""

    @extend_schema(
        operation_id="units_merge",
        request=UnitMergeIn,
        parameters=[OpenApiParameter("If-Match", str, OpenApiParameter.HEADER, required=True)],
        responses=problems({200: UnitOut}, 403, 404, 409, 412, 422, 428),
    )
    def post(self, request: Request, unit_id: UUID) -> Response:
        """Give all that a unit has to another, archive it, and show the other."""
        wanted = self.read(UnitMergeIn)
        self.load(unit_id)
        version = etag.required_version(request)

        def merge() -> tuple[int, dict[str, Any]]:
            into = unit_queues.merge_unit(
                deed=self._deed(wanted["reason"]),
                unit_id=unit_id,
                into_id=wanted["into_id"],
                expected_version=version,
            )
            return 200, dict(UnitOut(into).data)

        return self.once(merge)


def _written(effect: UnitEffect) -> dict[str, Any]:
    clusters = [{"cluster": one.cluster, "preview": plain(one.preview)} for one in effect.clusters]
    return {
        "change": effect.change.value,
        "units": effect.units,
        "people": PersonChangeOut(effect.people, many=True).data,
        "people_of_target": PersonChangeOut(effect.people_of_target, many=True).data,
        "queues": QueueMoveOut(effect.queues, many=True).data,
        "clusters": clusters,
    }
