"""Where a one-use link leads: who was invited, or whose password was reset, chooses one."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth import logout
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache

from controlplane.forms import people as forms
from controlplane.forms.people import TextForm
from controlplane.pages.frame import now
from tenants.domain import account_links
from tenants.domain.errors import Invalid, NotFound


@never_cache
def choose_password(request: HttpRequest, secret: str) -> HttpResponse:
    """Show the form of a link that is in force; then sign in with what was chosen."""
    try:
        link = account_links.find_link(secret, now())
    except NotFound:
        return render(request, "account/link_ended.html", status=404)
    form = forms.form_of(request.POST, "password", "repeated")
    if request.method == "POST" and _chosen(secret, form):
        # Whoever was signed in here is not necessarily whom the link is for.
        logout(request)
        messages.success(request, _("Your password is set; sign in with it."))
        return HttpResponseRedirect(reverse("account_login"))
    context = {"link": link, "person": link.user, "form": form}
    # The address is the secret; the policy for referrers (same origin only) keeps it here.
    return render(request, "account/link.html", context, status=form.status)


def _chosen(secret: str, form: TextForm) -> bool:
    if form.values["password"] != form.values["repeated"]:
        form.say("repeated", "passwords_differ")
        return False
    try:
        account_links.use_link(secret=secret, password=form.values["password"], now=now())
    except Invalid as error:
        form.take(error)
    return form.is_valid
