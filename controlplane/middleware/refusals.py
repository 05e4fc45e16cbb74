"""Turns a domain function's refusal into the page that says so, with the right status."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from scheduling.domain.wording import sentence
from tenants.domain.errors import Conflict, Denied, Gone, Invalid, NotFound


class RefusalMiddleware:
    """Answers each refusal with its status, from `NotFound` with 404 to `Invalid` with 422.

    Views that can say it at the field catch these themselves; the API answers with problem+json
    before they come here.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        if isinstance(error, NotFound):
            return render(request, "404.html", {"what": error.what}, status=404)
        if isinstance(error, Denied):
            context = {"sentence": sentence(error.code, error.params), "ask": error.ask}
            return render(request, "403.html", context, status=403)
        if isinstance(error, Gone):
            sentences = [sentence(error.code, error.params)]
            lost = {"sentences": sentences, "is_for_good": True}
            return render(request, "errors/refused.html", lost, status=410)
        if isinstance(error, Conflict):
            sentences = [sentence(error.code, error.params)]
            return render(request, "errors/refused.html", {"sentences": sentences}, status=409)
        if isinstance(error, Invalid):
            sentences = [sentence(one.code, one.params) for one in error.problems]
            return render(request, "errors/refused.html", {"sentences": sentences}, status=422)
        return None
