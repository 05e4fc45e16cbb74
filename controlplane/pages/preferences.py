"""What a viewer chooses for this browser: the theme, the density of rows, the columns of a list."""

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_POST

from controlplane.pages.frame import DENSITIES, DENSITY_COOKIE, THEME_COOKIE, THEMES

A_YEAR_SECONDS = 365 * 24 * 3600
COLUMNS_COOKIE = "terrace_columns"
COLUMNS = {
    "queue": gettext_lazy("Queue"),
    "user": gettext_lazy("User"),
    "tasks": gettext_lazy("Tasks"),
    "gpus": gettext_lazy("GPUs"),
    "wait": gettext_lazy("Wait"),
    "run": gettext_lazy("Run"),
    "reason": gettext_lazy("Reason"),
}
"""Columns of the list of jobs that may be hidden; state and name always stand there."""


@require_POST
def theme(request: HttpRequest) -> HttpResponse:
    """Remember the theme in a cookie and go back to where the form stood."""
    wanted = request.POST.get("theme", "")
    return _remembered(request, THEME_COOKIE, wanted if wanted in dict(THEMES) else "")


@require_POST
def density(request: HttpRequest) -> HttpResponse:
    """Remember how high rows are."""
    wanted = request.POST.get("density", "")
    return _remembered(request, DENSITY_COOKIE, wanted if wanted in dict(DENSITIES) else "")


@require_POST
def columns(request: HttpRequest) -> HttpResponse:
    """Remember which columns the list of jobs does without."""
    shown = set(request.POST.getlist("column"))
    return _remembered(
        request, COLUMNS_COOKIE, ".".join(name for name in COLUMNS if name not in shown)
    )


def hidden_columns(request: HttpRequest) -> list[str]:
    """Return the columns that this browser hides."""
    hidden = request.COOKIES.get(COLUMNS_COOKIE, "").split(".")
    return [name for name in COLUMNS if name in hidden]


def _remembered(request: HttpRequest, cookie: str, value: str) -> HttpResponse:
    target = request.POST.get("next", "/")
    if not url_has_allowed_host_and_scheme(target, allowed_hosts={request.get_host()}):
        target = "/"
    response = HttpResponseRedirect(target)
    if value:
        response.set_cookie(
            cookie, value, max_age=A_YEAR_SECONDS, samesite="Lax", secure=request.is_secure()
        )
    else:
        response.delete_cookie(cookie, samesite="Lax")
    return response
