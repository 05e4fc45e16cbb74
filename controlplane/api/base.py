"""What every view of the API has: who acts, the time, a bounded body, a request id."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, ClassVar

from django.http import HttpRequest
from django.utils import timezone
from django.utils.functional import cached_property
from rest_framework.authentication import SessionAuthentication
from rest_framework.exceptions import APIException, ParseError
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer
from rest_framework.views import APIView

from controlplane.api import errors
from controlplane.api.authentication import TokenAuthentication
from controlplane.api.idempotency import reply_once
from controlplane.api.parsers import JsonParser
from tenants.domain.access import Actor, load_actor
from tenants.models import ApiToken, User

MIB = 1024 * 1024


class BodyTooLarge(APIException):
    """413: the body is larger than this address reads."""

    status_code = 413
    default_code = "body_too_large"


class ApiView(APIView):
    """Base of the views: signed-in people and tokens only, problem documents for refusals.

    Domain functions check rights; lists go through scoped querysets.
    """

    authentication_classes = (TokenAuthentication, SessionAuthentication)
    permission_classes = (IsAuthenticated,)
    parser_classes: Any = (JsonParser,)
    largest_body: ClassVar[int] = MIB

    def initialize_request(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Request:
        """Take the request's id over."""
        api_request = super().initialize_request(request, *args, **kwargs)
        api_request.request_id = getattr(request, "request_id", "")  # type: ignore[attr-defined]  # RequestIdMiddleware's
        return api_request

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Refuse a body that is too large before it is read, and what no column can hold."""
        super().initial(request, *args, **kwargs)
        for name, values in request.query_params.lists():
            if any("\0" in value for value in values):
                raise ParseError(f"“{name[:40]}” holds NUL, which no text here does; leave it out.")
        length = request.META.get("CONTENT_LENGTH") or "0"
        if not length.isdecimal() or int(length) > self.largest_body:
            detail = f"The body has {length} bytes; {self.largest_body} are read here."
            raise BodyTooLarge(detail)

    def finalize_response(
        self, request: Request, response: Response, *args: Any, **kwargs: Any
    ) -> Response:
        """Name the request in the reply, and keep the reply out of caches."""
        response["X-Request-ID"] = getattr(request, "request_id", "")
        response.setdefault("Cache-Control", "no-store")
        return super().finalize_response(request, response, *args, **kwargs)

    def get_exception_handler(self) -> Callable[[Exception, dict[str, Any]], Response]:
        """Answer refusals with problem documents."""
        return errors.handle

    @property
    def user(self) -> User:
        """The signed-in user."""
        assert isinstance(self.request.user, User)  # noqa: S101 - IsAuthenticated saw to it
        return self.request.user

    @cached_property
    def actor(self) -> Actor:
        """Who acts, with the rights in force now."""
        token = self.request.auth
        return load_actor(self.user, token if isinstance(token, ApiToken) else None)

    @cached_property
    def now(self) -> datetime:
        """The time of the request."""
        return timezone.now()

    @property
    def request_id(self) -> str:
        """The request's id, for the audit trail."""
        return str(getattr(self.request, "request_id", ""))

    def read(self, serializer: type[Serializer[Any]]) -> dict[str, Any]:
        """Return the body as the serializer reads it; unknown fields are refused.

        Raises:
            rest_framework.exceptions.ValidationError: with every wrong field.
        """
        reader = serializer(data=self.request.data)
        reader.is_valid(raise_exception=True)
        values: dict[str, Any] = reader.validated_data
        return values

    def once(self, effect: Callable[[], tuple[int, Mapping[str, Any]]]) -> Response:
        """Answer a POST, once for each Idempotency-Key."""
        return reply_once(self.request, user_id=self.user.pk, now=self.now, effect=effect)

    def listed(self, items: list[Any], after: str | None) -> Response:
        """Answer with one page of a list and the cursor of the next."""
        return Response({"items": items, "next": after})
