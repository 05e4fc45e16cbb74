"""Webhooks: made, switched, given new secrets and removed; the secret is shown when it is made."""

from __future__ import annotations

from collections import Counter
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
from scheduling.domain import events
from tenants.domain import webhooks
from tenants.domain.errors import NotFound
from tenants.domain.webhooks import NewWebhook
from tenants.models import Webhook

IF_MATCH = OpenApiParameter("If-Match", str, OpenApiParameter.HEADER, required=True)


class WebhookOut(serializers.Serializer[Any]):
    """A webhook, without its secret."""

    id = serializers.UUIDField()
    unit_id = serializers.UUIDField()
    unit_name = serializers.CharField(source="unit.name")
    name = serializers.CharField()
    url = serializers.CharField()
    subjects = serializers.ListField(child=serializers.CharField())
    is_active = serializers.BooleanField()
    cursor = serializers.CharField(help_text="The last event that it was told, or is being told.")
    last_delivered_at = serializers.DateTimeField(allow_null=True)
    last_error = serializers.CharField(help_text="Why the last try failed; empty: it did not.")
    dead_deliveries = serializers.IntegerField(help_text="Given up; `retry` tries them again.")
    created_at = serializers.DateTimeField()
    version = serializers.IntegerField()


class WebhookMadeOut(WebhookOut):
    """A webhook with its secret, which is shown this once."""

    secret = serializers.CharField()


class WebhookIn(StrictSerializer):
    """A new webhook."""

    unit_id = serializers.UUIDField()
    name = serializers.CharField(max_length=webhooks.LONGEST_NAME)
    url = serializers.CharField(max_length=500)
    subjects = serializers.ListField(
        child=serializers.CharField(max_length=8),
        max_length=len(webhooks.SUBJECTS),
        default=["job"],
        help_text="job, task, attempt: whose changes are told.",
    )
    reason = ReasonField()


class WebhookPatchIn(StrictSerializer):
    """What of a webhook can be changed."""

    is_active = serializers.BooleanField()


class WebhookBase(ApiView):
    """Base of the views of webhooks."""

    def load(self, webhook_id: UUID) -> Webhook:
        """Return a webhook that the actor may see.

        Raises:
            NotFound: there is none.
        """
        webhook = webhooks.visible_to(self.actor).filter(id=webhook_id).first()
        if webhook is None:
            raise NotFound("webhook")
        return webhook

    def reply(self, webhook_id: UUID) -> Response:
        """Answer with a webhook as it is now, and its entity tag."""
        webhook = self.load(webhook_id)
        return Response(_out(webhook), headers={"ETag": etag.tag(webhook.version)})


class WebhooksView(WebhookBase):
    """The webhooks."""

    @extend_schema(
        operation_id="webhooks_list", responses=problems({200: listing(WebhookOut)}, 422)
    )
    def get(self, request: Request) -> Response:
        """List the webhooks of the units whose webhooks you may see."""
        items, after = pagination.page(webhooks.visible_to(self.actor), ("name", "id"), request)
        _count_dead(items)
        return self.listed(list(WebhookOut(items, many=True).data), after)

    @extend_schema(
        operation_id="webhooks_create",
        request=WebhookIn,
        responses=problems({201: WebhookMadeOut}, 403, 404, 409, 422),
    )
    def post(self, request: Request) -> Response:
        """Make a webhook, which is told what happens from now on.

        The reply holds the secret that signs deliveries, and is the only one that does: a repeated
        request is not answered with it again.
        """
        del request
        wanted = self.read(WebhookIn)
        webhook, secret = webhooks.create_webhook(
            actor=self.actor,
            unit_id=wanted["unit_id"],
            new=NewWebhook(wanted["name"], wanted["url"], wanted["subjects"]),
            cursor=str(events.newest()),
            now=self.now,
            reason=wanted["reason"],
            request_id=self.request_id,
        )
        return Response({**_out(webhook), "secret": secret}, status=201)


class WebhookDetailView(WebhookBase):
    """One webhook."""

    @extend_schema(operation_id="webhooks_read", responses=problems({200: WebhookOut}, 404))
    def get(self, request: Request, webhook_id: UUID) -> Response:
        """Show one webhook."""
        del request
        return self.reply(webhook_id)

    @extend_schema(
        operation_id="webhooks_update",
        request=WebhookPatchIn,
        parameters=[IF_MATCH],
        responses=problems({200: WebhookOut}, 403, 404, 409, 412, 422, 428),
    )
    def patch(self, request: Request, webhook_id: UUID) -> Response:
        """Switch a webhook off or on; what happened meanwhile is told when it is on again."""
        self.load(webhook_id)
        version = etag.required_version(request)
        wanted = self.read(WebhookPatchIn)
        webhooks.set_active(
            actor=self.actor,
            webhook_id=webhook_id,
            is_active=wanted["is_active"],
            expected_version=version,
            now=self.now,
            request_id=self.request_id,
        )
        return self.reply(webhook_id)

    @extend_schema(
        operation_id="webhooks_delete",
        parameters=[IF_MATCH],
        responses=problems({204: None}, 403, 404, 409, 412, 428),
    )
    def delete(self, request: Request, webhook_id: UUID) -> Response:
        """Remove a webhook with all that it was not told yet."""
        self.load(webhook_id)
        webhooks.remove_webhook(
            actor=self.actor,
            webhook_id=webhook_id,
            expected_version=etag.required_version(request),
            now=self.now,
            request_id=self.request_id,
        )
        return Response(status=204)


class WebhookSecretView(WebhookBase):
    """The secret of a webhook."""

    @extend_schema(
        operation_id="webhooks_renew_secret",
        request=None,
        parameters=[IF_MATCH],
        responses=problems({200: WebhookMadeOut}, 403, 404, 409, 412, 428),
    )
    def post(self, request: Request, webhook_id: UUID) -> Response:
        """Give a webhook a new secret; deliveries are signed by it from now on."""
        self.load(webhook_id)
        webhook, secret = webhooks.renew_secret(
            actor=self.actor,
            webhook_id=webhook_id,
            expected_version=etag.required_version(request),
            now=self.now,
            request_id=self.request_id,
        )
        return Response({**_out(webhook), "secret": secret})


class WebhookRetryOut(serializers.Serializer[Any]):
    """How many deliveries are tried again."""

    deliveries = serializers.IntegerField()


class WebhookRetryView(WebhookBase):
    """The dead deliveries of a webhook."""

    @extend_schema(
        operation_id="webhooks_retry",
        request=None,
        responses=problems({200: WebhookRetryOut}, 403, 404),
    )
    def post(self, request: Request, webhook_id: UUID) -> Response:
        """Try deliveries again that were given up."""
        del request
        revived = webhooks.retry_dead(
            actor=self.actor, webhook_id=webhook_id, now=self.now, request_id=self.request_id
        )
        return Response({"deliveries": revived})


def _out(webhook: Webhook) -> dict[str, Any]:
    _count_dead([webhook])
    return dict(WebhookOut(webhook).data)


def _count_dead(found: list[Webhook]) -> None:
    """Note with each webhook how many deliveries were given up. One query."""
    dead = webhooks.dead_deliveries([one.id for one in found])
    count = Counter(dead.order_by().values_list("key", flat=True))
    for one in found:
        one.dead_deliveries = count[str(one.id)]  # type: ignore[attr-defined]  # for the serializer
