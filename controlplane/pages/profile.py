"""What belongs to the person who looks: password, second factor, tokens, sessions, preferences."""

from __future__ import annotations

from functools import cache
from zoneinfo import available_timezones

from allauth.mfa.models import Authenticator
from django.conf import settings
from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from controlplane.forms import people as forms
from controlplane.forms.people import TextForm
from controlplane.pages.frame import LANGUAGES, PageRequest, now, page, render_page
from controlplane.pages.preferences import A_YEAR_SECONDS
from tenants.domain import browser_sessions, tokens, users
from tenants.domain.errors import Invalid

SECTION = "pages:profile"


@page
def profile(request: PageRequest) -> HttpResponse:
    """Show who the viewer is to this installation, and let them save how it looks to them."""
    user = request.user
    if request.method == "POST":
        form = forms.form_of(request.POST, "time_zone", "language")
        if _save(request, form):
            return _saved(form.text("language"))
    else:
        form = TextForm({"time_zone": user.time_zone, "language": user.language})
    moment = now()
    held = user.grants.select_related("unit").order_by("created_at", "id")
    own = tokens.visible_tokens(request.actor).filter(user=user).select_related("unit", "user")
    factors = list(Authenticator.objects.filter(user=user).values_list("type", flat=True))
    context = {
        "form": form,
        "grants": held,
        "tokens": own.filter(revoked_at__isnull=True, expires_at__gt=moment)[:100],
        "factors": factors,
        "has_totp": "totp" in factors,
        "sessions": browser_sessions.list_sessions(user, moment, request.session.session_key),
        "languages": [("", _("as the browser asks")), *LANGUAGES],
        "zones": _zones(),
        "now": moment,
    }
    return render_page(
        request, "profile/profile.html", context, section=SECTION, status=form.status
    )


@cache
def _zones() -> list[tuple[str, str]]:
    """Return the zones that this machine's tables know, once: looking takes its time."""
    return [(name, "") for name in sorted(available_timezones()) if "/" in name or name == "UTC"]


def _save(request: PageRequest, form: TextForm) -> bool:
    try:
        users.set_preferences(
            actor=request.actor,
            time_zone=form.text("time_zone"),
            language=form.text("language"),
            now=now(),
        )
    except Invalid as error:
        form.take(error)
        return False
    messages.success(request, _("Saved."))
    return True


def _saved(language: str) -> HttpResponse:
    """Go back to the profile in the language that was chosen: the cookie comes before the row."""
    response = HttpResponseRedirect(reverse("pages:profile"))
    name = settings.LANGUAGE_COOKIE_NAME
    if language:
        response.set_cookie(
            name,
            language,
            max_age=A_YEAR_SECONDS,
            secure=settings.LANGUAGE_COOKIE_SECURE,
            httponly=settings.LANGUAGE_COOKIE_HTTPONLY,
            samesite="Lax",
        )
    else:
        response.delete_cookie(name, samesite="Lax")
    return response


@page
@require_POST
def end_sessions(request: PageRequest) -> HttpResponse:
    """Sign out in one other browser, or in all others."""
    ended = browser_sessions.end_own_sessions(
        actor=request.actor,
        session_id=request.POST.get("session") or None,
        current_key=request.session.session_key,
        now=now(),
    )
    messages.success(request, _("Sessions ended: %(n)d.") % {"n": ended})
    return HttpResponseRedirect(reverse("pages:profile"))
