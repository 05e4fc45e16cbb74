"""The generated OpenAPI document, and the shapes that its parts share."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, inline_serializer
from rest_framework import serializers

DocumentOut = OpenApiTypes.OBJECT
"""A document whose shape is described elsewhere (docs/api.md)."""


class FieldErrorOut(serializers.Serializer[Any]):
    """One thing that is wrong with the input."""

    field = serializers.CharField(help_text="In the words of the document; $ for all of it.")
    code = serializers.CharField()
    message = serializers.CharField()
    hint = serializers.CharField(allow_blank=True)


class ProblemOut(serializers.Serializer[Any]):
    """A refusal, as RFC 9457 describes it."""

    type = serializers.CharField()
    title = serializers.CharField()
    status = serializers.IntegerField()
    code = serializers.CharField(help_text="Stable; what programs go by.")
    detail = serializers.CharField()
    request_id = serializers.CharField(required=False)
    errors = FieldErrorOut(many=True, required=False)  # type: ignore[assignment]  # DRF takes fields out of the class
    ask = serializers.ListField(child=serializers.CharField(), required=False)
    params = serializers.DictField(required=False)
    difference = serializers.ListField(child=serializers.DictField(), required=False)
    current = serializers.ListField(child=serializers.DictField(), required=False)


_MEANINGS = {
    400: "The request cannot be read.",
    401: "Sign in, or send a token.",
    403: "You see it and may not do this; `ask` names who may.",
    404: "It is not there, or not for you to see.",
    409: "Its state does not allow this now.",
    410: "It is on record, and its bytes are lost; `detail` says what to do.",
    412: "Somebody changed it since; `difference` or `current` says what.",
    413: "The body is too large.",
    415: "The body is of another type than is read here.",
    422: "The input breaks rules; `errors` lists them.",
    428: "Send If-Match.",
    503: "The database is busy; try again.",
}


def problems(good: Mapping[Any, Any], *statuses: int) -> dict[Any, Any]:
    """Return the responses of an operation: the good ones, and problems with these statuses.

    What every operation may answer (400, 401, 503) is added.
    """
    refusals = {
        (status, "application/problem+json"): OpenApiResponse(ProblemOut, _MEANINGS[status])
        for status in sorted({400, 401, *statuses, 503})
    }
    return {**good, **refusals}


@cache
def listing(item: type[serializers.Serializer[Any]]) -> serializers.Serializer[Any]:
    """Return the shape of one page of a list."""
    name = item.__name__.removesuffix("Out")
    return inline_serializer(
        f"{name}Page",
        {
            "items": item(many=True),
            "next": serializers.CharField(
                allow_null=True, help_text="The cursor for `after`; null on the last page."
            ),
        },
    )


class ApiSchema(AutoSchema):
    """Adds to lists what their pages take, and names what idempotent requests send."""

    def get_override_parameters(self) -> list[Any]:
        """Describe Idempotency-Key on every POST."""
        from drf_spectacular.utils import OpenApiParameter

        if self.method != "POST":
            return []
        return [
            OpenApiParameter(
                "Idempotency-Key",
                str,
                OpenApiParameter.HEADER,
                description="Sent again with the same body, the request is answered, not repeated.",
            )
        ]


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # by its metaclass
    """Describes API tokens."""

    target_class = "controlplane.api.authentication.TokenAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, str]:
        """Return the scheme."""
        del auto_schema
        return {"type": "http", "scheme": "bearer", "bearerFormat": "trc_..."}


@cache
def whole_list(item: type[serializers.Serializer[Any]]) -> serializers.Serializer[Any]:
    """Return the shape of a list that comes whole."""
    name = item.__name__.removesuffix("Out")
    return inline_serializer(f"{name}List", {"items": item(many=True)})
