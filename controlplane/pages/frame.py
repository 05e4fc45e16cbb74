"""What surrounds every page: who looks, the scope menu, alarms; and the shortcut that renders it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import wraps
from typing import Concatenate, ParamSpec

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django_htmx.middleware import HtmxDetails

from controlplane.version import VERSION
from scheduling.domain.queries import cluster as cluster_queries
from scheduling.domain.queries import jobs as job_queries
from scheduling.models import Queue
from tenants.domain.access import Actor
from tenants.models import User

P = ParamSpec("P")

THEME_COOKIE = "terrace_theme"
THEMES = (
    ("", gettext_lazy("Like the system")),
    ("light", gettext_lazy("Light")),
    ("dark", gettext_lazy("Dark")),
    ("contrast", gettext_lazy("High contrast")),
)


class PageRequest(HttpRequest):
    """A request as the pages get it: signed in, with an actor (`ActorMiddleware`)."""

    user: User
    actor: Actor
    htmx: HtmxDetails


@dataclass(frozen=True, slots=True)
class Frame:
    """The frame's own data: two queries."""

    theme: str
    query: str
    scope_queue: str
    queues: tuple[Queue, ...]
    alarms: tuple[str, ...]
    is_admin: bool
    version: str = VERSION
    themes: tuple[tuple[str, object], ...] = THEMES

    @property
    def scope_label(self) -> str:
        """Return what the scope menu shows closed."""
        return self.scope_queue or _("All queues")


def page(
    view: Callable[Concatenate[PageRequest, P], HttpResponse],
) -> Callable[Concatenate[HttpRequest, P], HttpResponse]:
    """Let only signed-in people reach a view."""

    @login_required
    @wraps(view)
    def checked(request: HttpRequest, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        return view(request, *args, **kwargs)  # type: ignore[arg-type] -- login_required and ActorMiddleware make it one

    return checked


def now() -> datetime:
    """Ask the clock, once a request, at the edge."""
    return datetime.now(UTC)


def frame_of(request: PageRequest) -> Frame:
    """Collect what the frame shows."""
    theme = request.COOKIES.get(THEME_COOKIE, "")
    return Frame(
        theme=theme if theme in dict(THEMES) else "",
        query=request.GET.get("q", ""),
        scope_queue=request.GET.get("queue", ""),
        queues=tuple(job_queries.queue_names(request.actor, limit=50)),
        alarms=_alarms(),
        is_admin=request.actor.is_platform_admin,
    )


def _alarms() -> tuple[str, ...]:
    absent = cluster_queries.clusters_without_scheduler()
    if not absent:
        return ()
    names = ", ".join(cluster.name for cluster in absent)
    return (
        _(
            "The scheduler is absent (cluster %(names)s): running jobs go on, waiting jobs stay "
            "queued until a worker takes over."
        )
        % {"names": names},
    )


def render_page(
    request: PageRequest,
    template: str,
    context: Mapping[str, object],
    *,
    section: str,
    status: int = 200,
) -> HttpResponse:
    """Render a whole page inside the frame."""
    full = {"actor": request.actor, "section": section, "frame": frame_of(request), **context}
    return render(request, template, full, status=status)
