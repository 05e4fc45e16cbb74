"""Shows times in the viewer's zone and words in the viewer's language."""

from collections.abc import Callable
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils import timezone, translation


class ViewerMiddleware:
    """Activates the zone and language of the signed-in user; the language cookie comes first."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        with timezone.override(_zone(request)):
            language = getattr(request.user, "language", "")
            if language and settings.LANGUAGE_COOKIE_NAME not in request.COOKIES:
                translation.activate(language)
            return self.get_response(request)


def _zone(request: HttpRequest) -> ZoneInfo | None:
    try:
        return ZoneInfo(getattr(request.user, "time_zone", "") or "UTC")
    except (ZoneInfoNotFoundError, ValueError):
        return None  # a zone that this machine's tables no longer know: the installation's own
