"""The pages that say that something failed on our side, or that a request could not be read."""

from http import HTTPStatus

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponse, HttpResponseServerError
from django.shortcuts import render
from django.template.loader import render_to_string


def server_error(request: HttpRequest) -> HttpResponseServerError:
    """Answer without a session or a query: either may be what failed."""
    request_id = getattr(request, "request_id", "")
    return HttpResponseServerError(render_to_string("500.html", {"request_id": request_id}))


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Say what cannot be read; of a body that is too large how large it may be."""
    is_too_large = isinstance(exception, RequestDataTooBig)
    context = {"most": settings.DATA_UPLOAD_MAX_MEMORY_SIZE if is_too_large else None}
    status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE if is_too_large else HTTPStatus.BAD_REQUEST
    return render(request, "400.html", context, status=status)
