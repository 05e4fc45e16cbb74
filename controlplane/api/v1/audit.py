"""The audit trail: what was changed, by whom, when and why; as pages of a list, or as a file."""

from __future__ import annotations

from typing import Any

from django.core.handlers.asgi import ASGIRequest
from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane import audit_export
from controlplane.api import pagination
from controlplane.api.base import ApiView
from controlplane.api.choices import choice
from controlplane.api.schema import listing, problems
from controlplane.audit_export import ExportFormat
from controlplane.audit_filters import filter_of
from scheduling.domain.queries.activity import AuditFilter, list_activity
from tenants.domain.errors import Invalid

FILTERS = [
    OpenApiParameter("action", description="How it begins, such as `queue.`."),
    OpenApiParameter("person", description="A user name."),
    OpenApiParameter("subject", description="A part of the name of what was changed, or its id."),
    OpenApiParameter("unit", OpenApiTypes.UUID, description="This org unit and all below it."),
    OpenApiParameter("since", description="A time, or a day in UTC."),
    OpenApiParameter("until", description="A time before which, or the last day in UTC."),
    OpenApiParameter("request_id", description="Of one request: its X-Request-ID."),
]


class AuditOut(serializers.Serializer[Any]):
    """One change: who did what to what, and why."""

    id = serializers.IntegerField()
    at = serializers.DateTimeField()
    actor = serializers.CharField(source="actor_label")
    action = serializers.CharField()
    subject_type = serializers.CharField()
    subject_id = serializers.CharField()
    subject_label = serializers.CharField()
    unit_id = serializers.UUIDField(allow_null=True)
    before = serializers.JSONField()
    after = serializers.JSONField()
    reason = serializers.CharField()
    request_id = serializers.CharField()


class AuditBase(ApiView):
    """Base of the views of the audit trail."""

    def where(self) -> AuditFilter:
        """Return the filters of the query.

        Raises:
            Invalid: one of them cannot be read.
        """
        where, wrong = filter_of(self.request.query_params)
        if wrong:
            raise Invalid(wrong)
        return where


class AuditView(AuditBase):
    """The audit trail, page by page."""

    @extend_schema(
        operation_id="audit_list",
        parameters=[
            *FILTERS,
            OpenApiParameter("before", int, description="Only rows before this id."),
        ],
        responses=problems({200: listing(AuditOut)}, 422),
    )
    def get(self, request: Request) -> Response:
        """List what was changed in your units, and what you did, the newest first."""
        given = request.query_params
        before = given.get("after") or given.get("before") or ""
        found = list_activity(
            self.actor,
            self.where(),
            before=pagination.number_of("before", before) if before else None,
            limit=pagination.limit_of(request),
        )
        return self.listed(list(AuditOut(found.rows, many=True).data), found.next_cursor or None)


class AuditExportView(AuditBase):
    """The audit trail as one file."""

    @extend_schema(
        operation_id="audit_export",
        parameters=[
            OpenApiParameter("form", enum=[str(one) for one in ExportFormat], default="jsonl"),
            *FILTERS,
        ],
        responses=problems(
            {
                (200, "application/x-ndjson"): OpenApiResponse(OpenApiTypes.STR, "JSON lines."),
                (200, "text/csv"): OpenApiResponse(OpenApiTypes.STR, "With a line of names."),
            },
            422,
        ),
    )
    def get(self, request: Request) -> StreamingHttpResponse:
        """Download all rows that you may read and the filters leave, the newest first."""
        form = choice(request, "form", ExportFormat, ExportFormat.JSON_LINES)
        return audit_export.stream(
            self.actor,
            self.where(),
            ExportFormat(form),
            name=f"audit-{self.now:%Y%m%d-%H%M%S}",
            is_async=isinstance(request._request, ASGIRequest),  # noqa: SLF001 -- how DRF wraps it
        )
