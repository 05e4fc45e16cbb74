"""Makes a change of a second factor one transaction, with the audit row that records it."""

from collections.abc import Callable
from typing import Any

from django.db import transaction
from django.http import HttpRequest, HttpResponse


class SecondFactorMiddleware:
    """Wraps what allauth's pages of second factors write; some of them write row by row."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_view(
        self,
        request: HttpRequest,
        view: Callable[..., HttpResponse],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> HttpResponse | None:
        name = (request.resolver_match and request.resolver_match.url_name) or ""
        if request.method != "POST" or not name.startswith("mfa_"):
            return None
        with transaction.atomic():
            return view(request, *args, **kwargs)
