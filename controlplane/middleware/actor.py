"""Says who acts: one `Actor` a request, loaded at first use."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from django.utils.functional import SimpleLazyObject

from tenants.domain.access import Actor, load_actor
from tenants.models import User


class ActorMiddleware:
    """Sets `request.actor`; it costs its one or two queries only where somebody asks for it."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        request.actor = SimpleLazyObject(lambda: _actor_of(request))  # type: ignore[attr-defined]  # ours
        return self.get_response(request)


def _actor_of(request: HttpRequest) -> Actor:
    """Load the rights of whoever is signed in; nobody has none."""
    if isinstance(request.user, User):
        return load_actor(request.user)
    return Actor(None, "anonymous")
