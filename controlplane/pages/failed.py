"""The page that says that something failed on our side, with the number that its log goes by."""

from django.http import HttpRequest, HttpResponseServerError
from django.template.loader import render_to_string


def server_error(request: HttpRequest) -> HttpResponseServerError:
    """Answer without a session or a query: either may be what failed."""
    request_id = getattr(request, "request_id", "")
    return HttpResponseServerError(render_to_string("500.html", {"request_id": request_id}))
