"""Change sets of queues: drafted, simulated, reviewed, applied now or at a time, reverted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.api import errors, etag, pagination, schema
from controlplane.api.base import ApiView
from controlplane.api.fields import ReasonField, StrictSerializer
from controlplane.api.schema import listing, problems
from controlplane.api.v1.queues import MOST_EDITS, EditIn, edits_of_body, preview_document
from scheduling.domain import change_set_rows, change_sets
from scheduling.domain.queries import change_sets as reading
from scheduling.domain.queries import cluster as cluster_queries
from scheduling.models.change_set import ChangeSetState
from tenants.domain.errors import Invalid, Problem

IF_MATCH = OpenApiParameter("If-Match", str, OpenApiParameter.HEADER, required=True)


class ChangeItemOut(serializers.Serializer[Any]):
    """What is wanted of one queue, beside what was seen; `queue_id` null: the queue is gone."""

    queue_id = serializers.UUIDField(allow_null=True)
    queue_name = serializers.CharField()
    expected_version = serializers.IntegerField()
    old = serializers.DictField()
    new = serializers.DictField()
    applied_version = serializers.IntegerField(allow_null=True)


class ChangeSetOut(serializers.Serializer[Any]):
    """A change set in a list."""

    id = serializers.UUIDField()
    title = serializers.CharField()
    reason = serializers.CharField()
    state = serializers.ChoiceField(ChangeSetState.choices)
    author = serializers.CharField(source="author.username", default=None, allow_null=True)
    reviewer = serializers.CharField(source="reviewer.username", default=None, allow_null=True)
    review_comment = serializers.CharField()
    apply_at = serializers.DateTimeField(allow_null=True)
    applied_at = serializers.DateTimeField(allow_null=True)
    created_at = serializers.DateTimeField()
    impact = serializers.DictField(allow_null=True, help_text="Sums of the last simulation.")
    impact_at = serializers.DateTimeField(allow_null=True)
    reverts_id = serializers.UUIDField(allow_null=True)
    version = serializers.IntegerField()


class ChangeSetDetailOut(ChangeSetOut):
    """A change set with what it changes, what it needs, and what stands in its way."""

    items = ChangeItemOut(many=True)
    needs = serializers.ChoiceField([one.value for one in change_sets.Need])
    problems = serializers.ListField(child=serializers.DictField())
    difference = serializers.ListField(
        child=serializers.DictField(), help_text="Queues that others changed since, three ways."
    )


class ChangeSetIn(StrictSerializer):
    """A new draft."""

    title = serializers.CharField(max_length=change_sets.LONGEST_TITLE)
    edits = serializers.ListField(child=EditIn(), max_length=MOST_EDITS, default=list)
    reason = ReasonField()


class ChangeSetPatchIn(StrictSerializer):
    """What shall be different; `edits` replace all that it has."""

    title = serializers.CharField(max_length=change_sets.LONGEST_TITLE, required=False)
    edits = serializers.ListField(child=EditIn(), max_length=MOST_EDITS, required=False)
    reason = serializers.CharField(max_length=500, allow_blank=True, required=False)


class StepIn(StrictSerializer):
    """A step that needs no more said."""


class ReviewIn(StrictSerializer):
    """What the second person has to say."""

    comment = ReasonField()


class ApplyIn(StrictSerializer):
    """Its title as `confirmation`, where it takes much."""

    confirmation = serializers.CharField(max_length=200, allow_blank=True, default="")


class ScheduleIn(ApplyIn):
    """When it shall be applied."""

    apply_at = serializers.DateTimeField()


class RevertIn(StrictSerializer):
    """Why."""

    reason = ReasonField()


class KeepIn(StrictSerializer):
    """A field that shall stay as others made it."""

    queue_id = serializers.UUIDField()
    field = serializers.ChoiceField(list(change_set_rows.FIELDS))


class RebaseIn(StrictSerializer):
    """Which fields shall stay as others made them; of the rest what is wanted is kept."""

    theirs = serializers.ListField(child=KeepIn(), max_length=MOST_EDITS * 10, default=list)


class ChangeSetView(ApiView):
    """Base of the views of change sets."""

    def written(self, change_set_id: UUID) -> dict[str, Any]:
        """Write a change set as it is now."""
        row = reading.load(self.actor, change_set_id)
        found = change_sets.impact_of(row)
        need = change_sets.need_of(found) if found else change_sets.Need.NOTHING
        return dict(ChangeSetOut(row).data) | {
            "items": ChangeItemOut(row.items.all(), many=True).data,
            "needs": need.value,
            "problems": row.problems,
            "difference": errors.difference_of(change_set_rows.differences(row)),
        }

    def reply(self, change_set_id: UUID, status: int = 200) -> Response:
        """Answer with a change set and its entity tag."""
        document = self.written(change_set_id)
        return Response(document, status=status, headers={"ETag": etag.tag(document["version"])})


class ChangeSetsView(ChangeSetView):
    """The change sets of the queues that you see."""

    @extend_schema(
        operation_id="change_sets_list",
        parameters=[
            OpenApiParameter("state", enum=ChangeSetState.values),
            OpenApiParameter("limit", int),
            OpenApiParameter("after"),
        ],
        responses=problems({200: listing(ChangeSetOut)}, 422),
    )
    def get(self, request: Request) -> Response:
        """List change sets, the newest first."""
        rows = reading.visible(self.actor)
        state = request.query_params.get("state", "")
        if state:
            if state not in ChangeSetState.values:
                params = {"value": state[:40], "allowed": ", ".join(ChangeSetState.values)}
                raise Invalid([Problem("state", "not_one_of", params)])
            rows = rows.filter(state=state)
        items, after = pagination.page(rows, ("-created_at", "-id"), request)
        return self.listed(list(ChangeSetOut(items, many=True).data), after)

    @extend_schema(
        operation_id="change_sets_create",
        parameters=[OpenApiParameter("cluster", description="By default the first one.")],
        request=ChangeSetIn,
        responses=problems({201: ChangeSetDetailOut}, 403, 404, 422),
    )
    def post(self, request: Request) -> Response:
        """Begin a draft; nothing of it is in force before it is applied."""
        cluster = cluster_queries.load_cluster(request.query_params.get("cluster", ""))
        wanted = self.read(ChangeSetIn)

        def create() -> tuple[int, dict[str, Any]]:
            row = change_sets.create(
                actor=self.actor,
                cluster_id=cluster.id,
                title=wanted["title"],
                edits=edits_of_body(wanted),
                reason=wanted["reason"],
                now=self.now,
                request_id=self.request_id,
            )
            return 201, self.written(row.id)

        return self.once(create)


class ChangeSetDetailView(ChangeSetView):
    """One change set."""

    @extend_schema(
        operation_id="change_sets_read", responses=problems({200: ChangeSetDetailOut}, 404)
    )
    def get(self, request: Request, change_set_id: UUID) -> Response:
        """Show what it changes and what stands in its way."""
        del request
        return self.reply(change_set_id)

    @extend_schema(
        operation_id="change_sets_update",
        request=ChangeSetPatchIn,
        parameters=[IF_MATCH],
        responses=problems({200: ChangeSetDetailOut}, 403, 404, 409, 412, 422, 428),
    )
    def patch(self, request: Request, change_set_id: UUID) -> Response:
        """Change it as it was seen at the version of If-Match; other edits make it a draft."""
        version = etag.required_version(request)
        wanted = self.read(ChangeSetPatchIn)
        change_sets.edit(
            actor=self.actor,
            change_set_id=change_set_id,
            expected_version=version,
            title=wanted.get("title"),
            reason=wanted.get("reason"),
            edits=edits_of_body(wanted) if "edits" in wanted else None,
            now=self.now,
            request_id=self.request_id,
        )
        return self.reply(change_set_id)

    @extend_schema(
        operation_id="change_sets_delete",
        parameters=[IF_MATCH],
        responses=problems({204: None}, 403, 404, 409, 412, 422, 428),
    )
    def delete(self, request: Request, change_set_id: UUID) -> Response:
        """Throw a draft away."""
        change_sets.discard(
            actor=self.actor,
            change_set_id=change_set_id,
            expected_version=etag.required_version(request),
            now=self.now,
            request_id=self.request_id,
        )
        return Response(status=204)


class ChangeSetSimulateView(ChangeSetView):
    """What it would do."""

    @extend_schema(
        operation_id="change_sets_simulate",
        request=StepIn,
        responses=problems({200: schema.DocumentOut}, 403, 404, 412, 422),
    )
    def post(self, request: Request, change_set_id: UUID) -> Response:
        """Say what applying it now would do to shares and tasks; nothing is written."""
        del request
        self.read(StepIn)
        found = change_sets.simulate(actor=self.actor, change_set_id=change_set_id, now=self.now)
        return Response(
            preview_document(found) | {"needs": change_sets.need_of(found.impact).value}
        )


Step = Callable[..., object]


class ChangeSetStepView(ChangeSetView):
    """One step of a change set; the subclasses name their body."""

    body: type[StrictSerializer] = StepIn
    step: Step | None = None

    def take(self, change_set_id: UUID, wanted: dict[str, Any]) -> UUID:
        """Take the step; return the change set to answer with."""
        assert self.step is not None  # noqa: S101 - the address names one
        self.step(
            actor=self.actor,
            change_set_id=change_set_id,
            now=self.now,
            request_id=self.request_id,
            **wanted,
        )
        return change_set_id

    def answer(self, change_set_id: UUID) -> Response:
        """Take the step once for each Idempotency-Key."""
        wanted = self.read(self.body)

        def effect() -> tuple[int, dict[str, Any]]:
            return 200, self.written(self.take(change_set_id, wanted))

        return self.once(effect)


STATUSES = (403, 404, 409, 412, 422)


class PlainStepView(ChangeSetStepView):
    """Validate, ask for a review, take the time away."""

    @extend_schema(request=StepIn, responses=problems({200: ChangeSetDetailOut}, *STATUSES))
    def post(self, request: Request, change_set_id: UUID) -> Response:
        """Take the step that the address names."""
        del request
        return self.answer(change_set_id)


class ReviewView(ChangeSetStepView):
    """Approve or reject, as a second person."""

    body = ReviewIn

    @extend_schema(request=ReviewIn, responses=problems({200: ChangeSetDetailOut}, *STATUSES))
    def post(self, request: Request, change_set_id: UUID) -> Response:
        """Approve it or send it back."""
        del request
        return self.answer(change_set_id)


class ApplyView(ChangeSetStepView):
    """Put it in force."""

    body = ApplyIn
    step = staticmethod(change_sets.apply)

    @extend_schema(request=ApplyIn, responses=problems({200: ChangeSetDetailOut}, *STATUSES))
    def post(self, request: Request, change_set_id: UUID) -> Response:
        """Put all of it in force now, or nothing."""
        del request
        return self.answer(change_set_id)


class ScheduleView(ChangeSetStepView):
    """Give it a time."""

    body = ScheduleIn
    step = staticmethod(change_sets.schedule)

    @extend_schema(request=ScheduleIn, responses=problems({200: ChangeSetDetailOut}, *STATUSES))
    def post(self, request: Request, change_set_id: UUID) -> Response:
        """Let it be applied by itself at a time, with your rights as they are then."""
        del request
        return self.answer(change_set_id)


class RevertView(ChangeSetStepView):
    """Bring back what was."""

    body = RevertIn

    def take(self, change_set_id: UUID, wanted: dict[str, Any]) -> UUID:
        """Answer with the change set that brings it back."""
        made = change_sets.revert(
            actor=self.actor,
            change_set_id=change_set_id,
            now=self.now,
            request_id=self.request_id,
            **wanted,
        )
        return made.id

    @extend_schema(request=RevertIn, responses=problems({200: ChangeSetDetailOut}, *STATUSES))
    def post(self, request: Request, change_set_id: UUID) -> Response:
        """Bring back the old values; the reply is the change set that does it."""
        del request
        return self.answer(change_set_id)


class RebaseView(ChangeSetStepView):
    """Settle what others changed."""

    body = RebaseIn

    @extend_schema(
        request=RebaseIn,
        parameters=[IF_MATCH],
        responses=problems({200: ChangeSetDetailOut}, *STATUSES, 428),
    )
    def post(self, request: Request, change_set_id: UUID) -> Response:
        """Take the queues as they are now; keep what is wanted, but for the fields in `theirs`."""
        version = etag.required_version(request)
        wanted = self.read(RebaseIn)
        change_sets.rebase(
            actor=self.actor,
            change_set_id=change_set_id,
            expected_version=version,
            theirs=[(one["queue_id"], one["field"]) for one in wanted["theirs"]],
            now=self.now,
            request_id=self.request_id,
        )
        return self.reply(change_set_id)


STEPS: dict[str, Any] = {
    "validate": PlainStepView.as_view(step=change_sets.validate),
    "ask-review": PlainStepView.as_view(step=change_sets.ask_review),
    "unschedule": PlainStepView.as_view(step=change_sets.unschedule),
    "approve": ReviewView.as_view(step=change_sets.approve),
    "reject": ReviewView.as_view(step=change_sets.reject),
    "apply": ApplyView.as_view(),
    "schedule": ScheduleView.as_view(),
    "revert": RevertView.as_view(),
    "rebase": RebaseView.as_view(),
}
"""The steps by the last part of their address."""
