"""What a viewer chooses for this browser: the theme."""

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST

from controlplane.pages.frame import THEME_COOKIE, THEMES

A_YEAR_SECONDS = 365 * 24 * 3600


@require_POST
def theme(request: HttpRequest) -> HttpResponse:
    """Remember the theme in a cookie and go back to where the form stood."""
    wanted = request.POST.get("theme", "")
    target = request.POST.get("next", "/")
    if not url_has_allowed_host_and_scheme(target, allowed_hosts={request.get_host()}):
        target = "/"
    response = HttpResponseRedirect(target)
    if wanted in dict(THEMES) and wanted:
        response.set_cookie(
            THEME_COOKIE, wanted, max_age=A_YEAR_SECONDS, samesite="Lax", secure=request.is_secure()
        )
    else:
        response.delete_cookie(THEME_COOKIE, samesite="Lax")
    return response
