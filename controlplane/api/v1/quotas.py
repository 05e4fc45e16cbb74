"""Quotas of units and of their users, each with its use."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.api import etag
from controlplane.api.base import ApiView
from controlplane.api.fields import LARGEST_AMOUNT, ActIn, ReasonField, StrictSerializer
from controlplane.api.schema import problems, whole_list
from scheduling.domain import quotas
from scheduling.domain.queries.quotas import QuotaView, list_quotas, load_quota
from scheduling.domain.quotas import Subject
from scheduling.models import QuotaResource, QuotaScope
from tenants.domain.errors import Invalid, NotFound, Problem
from tenants.models import User

FIELDS = {
    "running_jobs": QuotaResource.RUNNING_JOBS,
    "queued_jobs": QuotaResource.QUEUED_JOBS,
    "cpu_milli": QuotaResource.CPU,
    "memory_bytes": QuotaResource.MEMORY,
    "gpu_milli": QuotaResource.GPU,
    "storage_bytes": QuotaResource.STORAGE,
}
"""Name in the API, with its unit -> what is counted."""


class QuotaAmounts(StrictSerializer):
    """What is limited; a field that is not there is not limited by this quota."""

    running_jobs = serializers.IntegerField(min_value=0, max_value=LARGEST_AMOUNT, required=False)
    queued_jobs = serializers.IntegerField(min_value=0, max_value=LARGEST_AMOUNT, required=False)
    cpu_milli = serializers.IntegerField(min_value=0, max_value=LARGEST_AMOUNT, required=False)
    memory_bytes = serializers.IntegerField(min_value=0, max_value=LARGEST_AMOUNT, required=False)
    gpu_milli = serializers.IntegerField(min_value=0, max_value=LARGEST_AMOUNT, required=False)
    storage_bytes = serializers.IntegerField(min_value=0, max_value=LARGEST_AMOUNT, required=False)


class QuotaOut(serializers.Serializer[Any]):
    """A quota: whom it is around, its limits, and what of them is used."""

    id = serializers.UUIDField(source="quota.id")
    unit_id = serializers.UUIDField(source="quota.unit_id")
    unit_name = serializers.CharField(source="quota.unit.name")
    scope = serializers.ChoiceField(QuotaScope.choices, source="quota.scope")
    username = serializers.SerializerMethodField()
    limits = serializers.SerializerMethodField()
    used = serializers.SerializerMethodField(help_text="Of `each_user`: by the one who uses most.")
    version = serializers.IntegerField(source="quota.version")

    def get_username(self, view: QuotaView) -> str | None:
        """Name the user of a personal quota."""
        return view.quota.user.get_username() if view.quota.user else None

    def get_limits(self, view: QuotaView) -> dict[str, int]:
        """Write the limits by their names in the API."""
        return {name_of(line.resource): line.limit for line in view.lines}

    def get_used(self, view: QuotaView) -> dict[str, int]:
        """Write the use by the same names."""
        return {name_of(line.resource): line.used for line in view.lines}


class QuotaIn(StrictSerializer):
    """A new quota."""

    unit_id = serializers.UUIDField()
    scope = serializers.ChoiceField(QuotaScope.choices, default=QuotaScope.UNIT.value)
    username = serializers.CharField(max_length=150, required=False, allow_null=True, default=None)
    limits = QuotaAmounts()
    reason = ReasonField()


class QuotaLimitsIn(StrictSerializer):
    """Other limits of a quota, all of them."""

    limits = QuotaAmounts()
    reason = ReasonField()


def name_of(resource: QuotaResource) -> str:
    """Return the name of a resource in the API."""
    return next(name for name, one in FIELDS.items() if one == resource)


def limits_in(given: dict[str, int]) -> dict[QuotaResource, int]:
    """Return limits by resource.

    Raises:
        Invalid: there is none.
    """
    if not given:
        raise Invalid([Problem("limits", "quota_empty")])
    return {FIELDS[name]: amount for name, amount in given.items()}


class QuotaBase(ApiView):
    """Base of the views of quotas."""

    def load(self, quota_id: UUID) -> QuotaView:
        """Return a quota that the actor may read.

        Raises:
            NotFound: there is none.
        """
        view = load_quota(self.actor, quota_id)
        if view is None:
            raise NotFound("quota")
        return view

    def reply(self, view: QuotaView, status: int = 200) -> Response:
        """Answer with a quota and its entity tag."""
        headers = {"ETag": etag.tag(view.quota.version)}
        return Response(QuotaOut(view).data, status=status, headers=headers)

    def write(self, subject: Subject, limits: dict[QuotaResource, int], **given: Any) -> Any:
        """Set a quota (Any: the arguments that both ways of writing share)."""
        return quotas.set_quota(
            actor=self.actor,
            subject=subject,
            limits=limits,
            now=self.now,
            request_id=self.request_id,
            **given,
        )


class QuotasView(QuotaBase):
    """The quotas."""

    @extend_schema(
        operation_id="quotas_list",
        parameters=[OpenApiParameter("unit", UUID, description="Only of this org unit.")],
        responses=problems({200: OpenApiResponse(whole_list(QuotaOut))}, 422),
    )
    def get(self, request: Request) -> Response:
        """List the quotas that you may read, with what of them is used."""
        unit = request.query_params.get("unit")
        try:
            unit_ids = None if unit is None else [UUID(unit)]
        except ValueError:
            raise Invalid([Problem("unit", "bad_uuid", {"value": str(unit)[:40]})]) from None
        found = list_quotas(self.actor, unit_ids=unit_ids)
        return Response({"items": QuotaOut(found, many=True).data})

    @extend_schema(
        operation_id="quotas_create",
        request=QuotaIn,
        responses=problems({201: QuotaOut}, 403, 404, 412, 422),
    )
    def post(self, request: Request) -> Response:
        """Set a quota where there is none yet."""
        del request
        wanted = self.read(QuotaIn)
        user = None
        if wanted["username"] is not None:
            user = User.objects.filter(username__iexact=wanted["username"]).first()
            if user is None:
                raise Invalid([Problem("username", "user_missing")])
        subject = Subject(wanted["unit_id"], QuotaScope(wanted["scope"]), user.id if user else None)
        limits = limits_in(wanted["limits"])

        def create() -> tuple[int, dict[str, Any]]:
            quota = self.write(subject, limits, expected_version=0, reason=wanted["reason"])
            return 201, dict(QuotaOut(self.load(quota.id)).data)

        return self.once(create)


class QuotaDetailView(QuotaBase):
    """One quota."""

    @extend_schema(operation_id="quotas_read", responses=problems({200: QuotaOut}, 404))
    def get(self, request: Request, quota_id: UUID) -> Response:
        """Show one quota."""
        del request
        return self.reply(self.load(quota_id))

    @extend_schema(
        operation_id="quotas_replace",
        request=QuotaLimitsIn,
        parameters=[OpenApiParameter("If-Match", str, OpenApiParameter.HEADER, required=True)],
        responses=problems({200: QuotaOut}, 403, 404, 412, 422, 428),
    )
    def put(self, request: Request, quota_id: UUID) -> Response:
        """Put other limits in the place of all that were seen at the version of If-Match."""
        view = self.load(quota_id)
        version = etag.required_version(request)
        wanted = self.read(QuotaLimitsIn)
        self.write(
            subject_of(view),
            limits_in(wanted["limits"]),
            expected_version=version,
            reason=wanted["reason"],
        )
        return self.reply(self.load(quota_id))

    @extend_schema(
        operation_id="quotas_delete",
        request=ActIn,
        parameters=[OpenApiParameter("If-Match", str, OpenApiParameter.HEADER, required=True)],
        responses=problems({204: OpenApiResponse(description="Gone.")}, 403, 404, 412, 428),
    )
    def delete(self, request: Request, quota_id: UUID) -> Response:
        """Take a quota away."""
        view = self.load(quota_id)
        self.write(subject_of(view), {}, expected_version=etag.required_version(request))
        return Response(status=204)


def subject_of(view: QuotaView) -> Subject:
    """Return whom a quota is around."""
    return Subject(view.quota.unit_id, QuotaScope(view.quota.scope), view.quota.user_id)
