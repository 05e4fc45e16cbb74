"""What wants somebody, as the Operations page lists it, and who looks after it."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.api.base import ApiView
from controlplane.api.fields import StrictSerializer
from controlplane.api.schema import problems, whole_list
from scheduling.domain import attention_marks
from scheduling.domain.queries.operations import Kind


class MarkOut(serializers.Serializer[Any]):
    """Who looks after a line, and since when."""

    assignee = serializers.CharField(source="assignee.username")
    at = serializers.DateTimeField(help_text="It lasts for a day.")


class AttentionOut(serializers.Serializer[Any]):
    """One thing that wants somebody."""

    kind = serializers.ChoiceField(choices=[(str(one), str(one)) for one in Kind])
    subject = serializers.CharField(
        source="id",
        help_text="What it is about: a job's or change set's id, a node's or queue's name, a loop.",
    )
    name = serializers.CharField()
    since = serializers.DateTimeField(allow_null=True)
    amount = serializers.IntegerField(
        help_text="GPUs in thousandths of `queue_starved` and `gpu_idle`, letters; else 0."
    )
    mark = MarkOut(allow_null=True)
    may_mark = serializers.BooleanField(help_text="Whether you may take it or give it to somebody.")


class LineIn(StrictSerializer):
    """Which line."""

    kind = serializers.CharField(max_length=30)
    subject = serializers.CharField(max_length=253)


class AssignIn(LineIn):
    """Which line, and who looks after it."""

    assignee = serializers.CharField(
        max_length=150, required=False, help_text="A user name; you, if it is not given."
    )


class AttentionView(ApiView):
    """What wants somebody."""

    @extend_schema(
        operation_id="attention_list", responses=problems({200: whole_list(AttentionOut)})
    )
    def get(self, request: Request) -> Response:
        """List what wants somebody among what you may see: what nobody looks after first."""
        del request
        found = attention_marks.listed(self.actor, now=self.now)
        items = [
            {
                **{name: getattr(one.line, name) for name in ("kind", "id", "name", "since")},
                "amount": one.line.amount,
                "mark": one.mark,
                "may_mark": one.may_mark,
            }
            for one in found
        ]
        return Response({"items": AttentionOut(items, many=True).data})


class AttentionAssignView(ApiView):
    """Who looks after a line."""

    @extend_schema(
        operation_id="attention_assign",
        request=AssignIn,
        responses=problems({200: MarkOut}, 403, 404, 422),
    )
    def post(self, request: Request) -> Response:
        """Look after a line, or give it to somebody who may; everybody who sees it sees who."""
        del request
        wanted = self.read(AssignIn)
        mark = attention_marks.assign(
            actor=self.actor,
            key=(wanted["kind"], wanted["subject"]),
            username=wanted.get("assignee") or self.user.username,
            now=self.now,
            request_id=self.request_id,
        )
        return Response(MarkOut(mark).data)


class AttentionGiveBackView(ApiView):
    """Nobody looks after a line any more."""

    @extend_schema(
        operation_id="attention_give_back",
        request=LineIn,
        responses=problems({204: None}, 403, 404, 422),
    )
    def post(self, request: Request) -> Response:
        """Give a line back: nobody looks after it any more."""
        del request
        wanted = self.read(LineIn)
        attention_marks.give_back(
            actor=self.actor,
            key=(wanted["kind"], wanted["subject"]),
            now=self.now,
            request_id=self.request_id,
        )
        return Response(status=204)
