"""Secrets of units: written, replaced, revoked and listed by name; no address gives a value."""

from __future__ import annotations

import base64
import binascii
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
from tenants.domain import secrets
from tenants.domain.errors import Invalid, NotFound, Problem
from tenants.domain.secrets import NewSecret
from tenants.models import Secret, SecretKind


class SecretOut(serializers.Serializer[Any]):
    """What may be known of a secret: names, times, and never a value."""

    id = serializers.UUIDField()
    unit_id = serializers.UUIDField()
    unit_name = serializers.CharField(source="unit.name")
    name = serializers.CharField()
    kind = serializers.ChoiceField(SecretKind.choices)
    is_shared = serializers.BooleanField()
    owner = serializers.SerializerMethodField()
    keys = serializers.ListField(child=serializers.CharField())
    created_at = serializers.DateTimeField()
    changed_at = serializers.DateTimeField()
    last_used_at = serializers.DateTimeField(allow_null=True)
    revoked_at = serializers.DateTimeField(allow_null=True)
    version = serializers.IntegerField()

    def get_owner(self, secret: Secret) -> str | None:
        """Name who made it."""
        return secret.owner.get_username() if secret.owner else None


class ValuesField(serializers.DictField):
    """Name -> text."""

    child = serializers.CharField(allow_blank=True, trim_whitespace=False)


class SecretValuesIn(StrictSerializer):
    """All values of a secret, as text or as base64."""

    values = ValuesField(required=False, default=dict, write_only=True)
    values_base64 = ValuesField(required=False, default=dict, write_only=True)
    reason = ReasonField()


class SecretIn(SecretValuesIn):
    """A new secret."""

    unit_id = serializers.UUIDField()
    name = serializers.CharField(max_length=63)
    kind = serializers.ChoiceField(SecretKind.choices, default=SecretKind.VARIABLES.value)
    is_shared = serializers.BooleanField(default=True)


def values_in(wanted: dict[str, Any]) -> dict[str, bytes]:
    """Return the values as bytes.

    Raises:
        Invalid: one is no base64; the value is not told.
    """
    values: dict[str, bytes] = {}
    for name, read in (("values", str.encode), ("values_base64", _decoded)):
        for key, text in wanted[name].items():
            try:
                values[key] = read(text)
            except (binascii.Error, ValueError):  # a lone surrogate, too, is no text
                path = f"{name}.{key[:80]}"
                raise Invalid([Problem(path, "secret_in_file", {"key": key[:80]})]) from None
    return values


def _decoded(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


class SecretBase(ApiView):
    """Base of the views of secrets."""

    def load(self, secret_id: UUID) -> Secret:
        """Return a secret whose name the actor may see.

        Raises:
            NotFound: there is none.
        """
        rows = secrets.visible_to(self.actor).select_related("unit", "owner")
        secret = rows.filter(id=secret_id).first()
        if secret is None:
            raise NotFound("secret")
        return secret

    def reply(self, secret: Secret, status: int = 200) -> Response:
        """Answer with what may be known and the entity tag."""
        headers = {"ETag": etag.tag(secret.version)}
        return Response(SecretOut(secret).data, status=status, headers=headers)


class SecretsView(SecretBase):
    """The secrets."""

    @extend_schema(operation_id="secrets_list", responses=problems({200: listing(SecretOut)}, 422))
    def get(self, request: Request) -> Response:
        """List the secrets whose names you may see, revoked ones left out."""
        rows = secrets.visible_to(self.actor).filter(revoked_at__isnull=True)
        found = rows.select_related("unit", "owner")
        items, after = pagination.page(found, ("name", "id"), request)
        return self.listed(list(SecretOut(items, many=True).data), after)

    @extend_schema(
        operation_id="secrets_create",
        request=SecretIn,
        responses=problems({201: SecretOut}, 403, 404, 409, 422),
    )
    def post(self, request: Request) -> Response:
        """Make a secret; its values cannot be read again."""
        del request
        wanted = self.read(SecretIn)
        new = NewSecret(
            wanted["name"],
            SecretKind(wanted["kind"]),
            values_in(wanted),
            is_shared=wanted["is_shared"],
        )

        def create() -> tuple[int, dict[str, Any]]:
            secret = secrets.create_secret(
                actor=self.actor,
                unit_id=wanted["unit_id"],
                new=new,
                now=self.now,
                reason=wanted["reason"],
                request_id=self.request_id,
            )
            return 201, dict(SecretOut(self.load(secret.id)).data)

        return self.once(create)


class SecretDetailView(SecretBase):
    """One secret."""

    @extend_schema(operation_id="secrets_read", responses=problems({200: SecretOut}, 404))
    def get(self, request: Request, secret_id: UUID) -> Response:
        """Show what may be known of one secret."""
        del request
        return self.reply(self.load(secret_id))

    @extend_schema(
        operation_id="secrets_replace",
        request=SecretValuesIn,
        parameters=[OpenApiParameter("If-Match", str, OpenApiParameter.HEADER, required=True)],
        responses=problems({200: SecretOut}, 403, 404, 409, 412, 422, 428),
    )
    def put(self, request: Request, secret_id: UUID) -> Response:
        """Put new values in the place of all old ones; tasks that start from now on get them."""
        self.load(secret_id)
        version = etag.required_version(request)
        wanted = self.read(SecretValuesIn)
        secrets.replace_values(
            actor=self.actor,
            secret_id=secret_id,
            values=values_in(wanted),
            expected_version=version,
            now=self.now,
            reason=wanted["reason"],
            request_id=self.request_id,
        )
        return self.reply(self.load(secret_id))

    @extend_schema(
        operation_id="secrets_revoke",
        parameters=[OpenApiParameter("If-Match", str, OpenApiParameter.HEADER, required=True)],
        responses=problems({200: SecretOut}, 403, 404, 409, 412, 428),
    )
    def delete(self, request: Request, secret_id: UUID) -> Response:
        """Revoke a secret: its values are destroyed, no task gets them any more."""
        self.load(secret_id)
        secrets.revoke_secret(
            actor=self.actor,
            secret_id=secret_id,
            expected_version=etag.required_version(request),
            now=self.now,
            request_id=self.request_id,
        )
        return self.reply(self.load(secret_id))
