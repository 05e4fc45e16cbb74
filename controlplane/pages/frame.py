"""What surrounds every page: who looks, the scope menu, alarms; and what renders it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import update_wrapper
from http import HTTPStatus
from typing import Concatenate, ParamSpec, cast
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import BadRequest
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django_htmx.middleware import HtmxDetails

from controlplane.version import VERSION
from scheduling.domain.queries import cluster as cluster_queries
from scheduling.domain.queries import jobs as job_queries
from scheduling.models import Queue
from tenants.domain.access import Actor, Verb, reads
from tenants.domain.errors import NotFound
from tenants.models import User

P = ParamSpec("P")

THEME_COOKIE = "terrace_theme"
THEMES = (
    ("", gettext_lazy("Like the system")),
    ("light", gettext_lazy("Light")),
    ("dark", gettext_lazy("Dark")),
    ("contrast", gettext_lazy("High contrast")),
)

DENSITY_COOKIE = "terrace_density"
DENSITIES = (
    ("compact", gettext_lazy("Compact rows")),
    ("", gettext_lazy("Normal rows")),
    ("relaxed", gettext_lazy("Relaxed rows")),
)

LANGUAGES = (("en", "English"), ("zh-hans", "简体中文"))
"""Code -> its own name, which everybody who wants it can read."""


class PageRequest(HttpRequest):
    """A request as the pages get it: signed in, with an actor (`ActorMiddleware`)."""

    user: User
    actor: Actor
    htmx: HtmxDetails


@dataclass(frozen=True, slots=True)
class Frame:
    """The frame's own data: two queries."""

    theme: str
    density: str
    query: str
    scope_queue: str
    queues: tuple[Queue, ...]
    alarms: tuple[str, ...]
    is_admin: bool
    may_see_people: bool
    """Whether the pages about units, people and tokens have something to show."""
    version: str = VERSION
    themes: tuple[tuple[str, object], ...] = THEMES
    densities: tuple[tuple[str, object], ...] = DENSITIES
    languages: tuple[tuple[str, str], ...] = LANGUAGES

    @property
    def zone(self) -> str:
        """Return the name of the zone in which this viewer is shown times."""
        return timezone.get_current_timezone_name()

    @property
    def scope_label(self) -> str:
        """Return what the scope menu shows closed."""
        return self.scope_queue or _("All queues")


def page(
    view: Callable[Concatenate[PageRequest, P], HttpResponseBase],
) -> Callable[Concatenate[HttpRequest, P], HttpResponseBase]:
    """Let only signed-in people reach a view, and those with a first password only change it."""

    def checked(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
        signed_in = cast("PageRequest", request)  # login_required and ActorMiddleware saw to it
        if signed_in.user.must_change_password:
            messages.info(request, _("Choose a password of your own first."))
            return HttpResponseRedirect(reverse("account_change_password"))
        return view(signed_in, *args, **kwargs)

    welcomed = login_required(checked)

    def asked(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
        if any("\0" in value for _name, values in request.GET.lists() for value in values):
            raise BadRequest("NUL in the address")  # no column holds it, and no browser sends it
        # A redirect would be followed, and the page to sign in put into the part asked for.
        is_part = request.headers.get("HX-Request") == "true"
        if is_part and not request.user.is_authenticated:
            return HttpResponse(status=HTTPStatus.UNAUTHORIZED)
        return welcomed(request, *args, **kwargs)

    update_wrapper(asked, view)
    return asked


def id_of(text: str, what: str) -> UUID:
    """Read an id that came in an address or a form.

    Raises:
        NotFound: it is none, so there is nothing of it.
    """
    try:
        return UUID(text)
    except ValueError:
        raise NotFound(what) from None


def now() -> datetime:
    """Ask the clock, once a request, at the edge."""
    return datetime.now(UTC)


def frame_of(request: PageRequest) -> Frame:
    """Collect what the frame shows."""
    theme = request.COOKIES.get(THEME_COOKIE, "")
    density = request.COOKIES.get(DENSITY_COOKIE, "")
    return Frame(
        theme=theme if theme in dict(THEMES) else "",
        density=density if density in dict(DENSITIES) else "",
        query=request.GET.get("q", ""),
        scope_queue=request.GET.get("queue", ""),
        queues=tuple(job_queries.queue_names(request.actor, limit=50)),
        alarms=_alarms(),
        is_admin=request.actor.is_platform_admin,
        may_see_people=_reads_people(request.actor),
    )


def _reads_people(actor: Actor) -> bool:
    """Tell whether the actor reads grants of others anywhere; no query."""
    scope = reads(actor, Verb.GRANT_READ)
    return scope.sees_everything or bool(scope.readable_units)


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
