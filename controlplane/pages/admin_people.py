"""People and service accounts: invited, looked at, given roles, disabled, removed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from controlplane import account_mail
from controlplane.forms import people as forms
from controlplane.forms.people import Choices, TextForm
from controlplane.pages.frame import PageRequest, now, page, render_page
from scheduling.domain import access_wording, org_preview
from scheduling.domain.org_preview import GrantEffect, UserChange
from scheduling.domain.queries import org as org_queries
from scheduling.domain.queries import people as queries
from scheduling.domain.queries.people import PeopleFilter, Person, Tab
from tenants.domain import account_links, grants, users
from tenants.domain.access import Verb, may, reads
from tenants.domain.errors import Conflict, Denied, Invalid, NotFound
from tenants.models import AccountLink, Grant, GrantRole, User

SECTION = "pages:people"
TABS = (
    (Tab.PEOPLE, gettext_lazy("People")),
    (Tab.INVITED, gettext_lazy("Invited")),
    (Tab.SERVICE, gettext_lazy("Service accounts")),
    (Tab.DISABLED, gettext_lazy("Disabled")),
    (Tab.REMOVED, gettext_lazy("Removed")),
)
NAMES = {"unit": "target"}


@page
def listing(request: PageRequest) -> HttpResponse:
    """List the accounts of the units whose people the viewer may see."""
    tab = request.GET.get("tab", "")
    where = PeopleFilter(
        tab=Tab(tab) if tab in set(Tab) else Tab.PEOPLE,
        text=request.GET.get("name", "").strip()[:150],
        unit_id=_uuid(request.GET.get("unit", "")),
    )
    found = queries.list_people(request.actor, where, after=request.GET.get("after", "")[:150])
    context = {
        "found": found,
        "where": where,
        "tabs": TABS,
        "units": [("", _("all units")), *_places(request, Verb.GRANT_READ)],
        "may_invite": bool(_places_exist(request)),
    }
    return render_page(request, "admin_people/list.html", context, section=SECTION)


def _places_exist(request: PageRequest) -> bool:
    scope = reads(request.actor, Verb.USER_EDIT)
    return scope.sees_everything or bool(scope.readable_units)


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _places(request: PageRequest, verb: Verb) -> list[tuple[str, str]]:
    return [(str(unit_id), path) for unit_id, path in org_queries.paths_of(request.actor, verb)]


def role_choices(request: PageRequest) -> Choices:
    """Return the roles with what they are for; that of the installation for its admins only."""
    return [
        (role.value, f"{access_wording.ROLE_NAMES[role]}: {access_wording.ROLE_HELP[role]}")
        for role in GrantRole
        if role != GrantRole.PLATFORM_ADMIN or request.actor.is_platform_admin
    ]


# --- new accounts ---------------------------------------------------------------------------------


@page
def invite(request: PageRequest) -> HttpResponse:
    """Make an account and show the link by which its person chooses a password."""
    given = request.POST if request.method == "POST" else request.GET
    form = forms.form_of(
        given, "username", "email", "first_name", "last_name", "role", "target", "reason"
    )
    if request.method == "POST":
        made = _invited(request, form)
        if made is not None:
            return _show_link(request, *made)
    return _show_new(request, form, "admin_people/invite.html")


def _invited(request: PageRequest, form: TextForm) -> tuple[AccountLink, str] | None:
    unit_id, role = _place_and_role(form)
    if role is None or not form.is_valid:
        return None
    try:
        return account_links.invite_user(
            actor=request.actor,
            username=form.text("username"),
            email=form.text("email"),
            first_name=form.text("first_name"),
            last_name=form.text("last_name"),
            role=role,
            unit_id=unit_id,
            now=now(),
            reason=form.text("reason"),
        )
    except (Invalid, Conflict, Denied) as error:
        form.take(error, NAMES)
        return None


def _place_and_role(form: TextForm) -> tuple[UUID | None, GrantRole | None]:
    unit_id = form.unit("target", is_required=False)
    role = form.text("role")
    if role not in GrantRole.values:
        form.say("role", "required")
        return unit_id, None
    return unit_id, GrantRole(role)


@page
def new_service(request: PageRequest) -> HttpResponse:
    """Make a service account, which a unit owns and which signs in by token only."""
    given = request.POST if request.method == "POST" else request.GET
    form = forms.form_of(given, "username", "role", "target", "reason")
    if request.method == "POST":
        made = _service(request, form)
        if made is not None:
            messages.success(request, _("The account is there; make a token for it now."))
            return HttpResponseRedirect(reverse("pages:person", args=[made.id]))
    return _show_new(request, form, "admin_people/new_service.html")


def _service(request: PageRequest, form: TextForm) -> User | None:
    unit_id, role = _place_and_role(form)
    if role is None or not form.is_valid:
        return None
    try:
        return users.create_user(
            actor=request.actor,
            username=form.text("username"),
            role=role,
            unit_id=unit_id,
            is_service=True,
            now=now(),
            reason=form.text("reason"),
        )
    except (Invalid, Conflict, Denied) as error:
        form.take(error, NAMES)
        return None


def _show_new(request: PageRequest, form: TextForm, template: str) -> HttpResponse:
    places = _places(request, Verb.USER_EDIT)
    if may(request.actor, Verb.USER_EDIT, None) and template == "admin_people/invite.html":
        places.append(("", _("the whole installation")))
    if not places:
        raise NotFound("user")
    form.values["role"] = form.values["role"] or GrantRole.RESEARCHER
    context = {
        "form": form,
        "places": places,
        "roles": role_choices(request),
        "is_mail_set_up": account_mail.is_mail_set_up(),
    }
    return render_page(request, template, context, section=SECTION, status=form.status)


def _show_link(request: PageRequest, link: AccountLink, secret: str) -> HttpResponse:
    """Show a one-use link, this once, and whether it was mailed."""
    context = {
        "link": link,
        "person": link.user,
        "address": account_mail.address_of(secret),
        "is_mailed": account_mail.mail_link(link, secret),
        "is_mail_set_up": account_mail.is_mail_set_up(),
    }
    return render_page(request, "admin_people/link.html", context, section=SECTION)


# --- one account ----------------------------------------------------------------------------------


@page
def person(request: PageRequest, user_id: UUID) -> HttpResponse:
    """Show one account: its roles, tokens and sessions, and what may be done with it."""
    found = queries.person(request.actor, user_id, now())
    context = {"found": found, "person": found.user, "acts": _acts_for(found), "now": now()}
    return render_page(request, "admin_people/person.html", context, section=SECTION)


ACTS: Mapping[str, tuple[Promise, Promise]] = {
    "disable": (gettext_lazy("Disable"), gettext_lazy("The account is disabled.")),
    "enable": (gettext_lazy("Enable"), gettext_lazy("The account is in use again.")),
    "remove": (gettext_lazy("Remove"), gettext_lazy("The account was removed.")),
    "reset_password": (gettext_lazy("Reset password"), gettext_lazy("The password was reset.")),
    "invite_again": (gettext_lazy("New invitation"), gettext_lazy("Invited again.")),
    "end_sessions": (gettext_lazy("Sign out everywhere"), gettext_lazy("Signed out everywhere.")),
    "remove_second_factor": (
        gettext_lazy("Remove second factor"),
        gettext_lazy("The second factor was removed."),
    ),
}
"""Word of the address -> what the button says, and what is said afterwards."""

_CHANGES: Mapping[str, Callable[..., Any]] = {
    "disable": users.disable_user,
    "enable": users.enable_user,
    "remove": users.remove_user,
    "reset_password": account_links.reset_password,
    "invite_again": account_links.invite_again,
    "end_sessions": users.end_sessions,
    "remove_second_factor": users.remove_second_factor,
}
_WITH_VERSION = frozenset({"disable", "enable", "remove", "reset_password"})
_WITH_LINK = frozenset({"reset_password", "invite_again"})


def _acts_for(found: Person) -> list[tuple[str, Promise]]:
    """Return what the viewer may do with an account as it is."""
    user = found.user
    if not found.may_edit or found.is_self:
        return []
    if not user.is_active:
        names = ["enable"] if user.removed_at else ["enable", "remove"]
    elif user.is_service:
        names = ["disable", "remove"]
    else:
        names = ["reset_password" if user.has_usable_password() else "invite_again"]
        names += ["end_sessions"] if found.sessions else []
        names += ["remove_second_factor"] if found.factors else []
        names += ["disable", "remove"]
    return [(name, ACTS[name][0]) for name in names]


@page
def act(request: PageRequest, user_id: UUID, what: str) -> HttpResponse:
    """Show what an act on an account would end; do it when told to."""
    if what not in ACTS:
        raise NotFound("page")
    found = queries.person(request.actor, user_id, now())
    given = request.POST if request.method == "POST" else {"version": str(found.user.version)}
    form = forms.form_of(given, "version", "reason")
    if request.method == "POST":
        done = _do(request, found.user, what, form)
        if done is not None:
            return done
    effect = None
    if form.is_valid and what in set(UserChange):
        try:
            effect = org_preview.preview_user(
                actor=request.actor, user_id=user_id, change=UserChange(what), now=now()
            )
        except (Conflict, Denied) as error:
            form.take(error)
    if form.is_conflict:
        form.values["version"] = str(found.user.version)
    context = {
        "found": found,
        "person": found.user,
        "act": what,
        "title": ACTS[what][0],
        "form": form,
        "effect": effect,
    }
    return render_page(
        request, "admin_people/act.html", context, section=SECTION, status=form.status
    )


def _do(request: PageRequest, user: User, what: str, form: TextForm) -> HttpResponse | None:
    more = {"expected_version": form.number("version")} if what in _WITH_VERSION else {}
    try:
        made = _CHANGES[what](
            actor=request.actor,
            user_id=user.id,
            now=now(),
            reason=form.text("reason"),
            **more,
        )
    except (Invalid, Conflict, Denied) as error:
        form.take(error)
        return None
    if what in _WITH_LINK:
        return _show_link(request, *made)
    messages.success(request, str(ACTS[what][1]))
    return HttpResponseRedirect(reverse("pages:person", args=[user.id]))


@page
def edit(request: PageRequest, user_id: UUID) -> HttpResponse:
    """Change an account's address and names."""
    found = queries.person(request.actor, user_id, now())
    if not found.may_edit:
        raise Denied("account_of_others_too", {"user": found.user.username})
    names = ("email", "first_name", "last_name")
    given = (
        request.POST
        if request.method == "POST"
        else {name: getattr(found.user, name) for name in names}
        | {"version": str(found.user.version)}
    )
    form = forms.form_of(given, *names, "version", "reason")
    if request.method == "POST":
        try:
            users.edit_user(
                actor=request.actor,
                user_id=user_id,
                expected_version=form.number("version"),
                now=now(),
                reason=form.text("reason"),
                **{name: form.text(name) for name in names},
            )
        except (Invalid, Conflict, Denied) as error:
            form.take(error)
            form.values["version"] = str(found.user.version)
        else:
            messages.success(request, _("Saved."))
            return HttpResponseRedirect(reverse("pages:person", args=[user_id]))
    context = {"found": found, "person": found.user, "form": form}
    return render_page(
        request, "admin_people/edit.html", context, section=SECTION, status=form.status
    )


# --- roles ----------------------------------------------------------------------------------------


@page
def give(request: PageRequest) -> HttpResponse:
    """Choose person, role and unit; show what becomes visible; give the role when told to."""
    given = request.POST if request.method == "POST" else request.GET
    form = forms.form_of(given, "username", "role", "target", "reason")
    effect = None
    if request.method == "POST":
        effect, grant = _give(request, form)
        if grant is not None:
            messages.success(request, _("The role holds from now on."))
            return HttpResponseRedirect(reverse("pages:person", args=[grant.user_id]))
    places = _places(request, Verb.GRANT_EDIT)
    if may(request.actor, Verb.GRANT_EDIT, None):
        places.append(("", _("the whole installation")))
    if not places:
        raise NotFound("grant")
    form.values["role"] = form.values["role"] or GrantRole.RESEARCHER
    known = users.visible_users(request.actor).filter(is_active=True)
    context = {
        "form": form,
        "effect": effect,
        "places": places,
        "roles": role_choices(request),
        "known": [
            (user.username, user.get_full_name()) for user in known.order_by("username")[:500]
        ],
    }
    return render_page(
        request, "admin_people/give.html", context, section=SECTION, status=form.status
    )


def _give(request: PageRequest, form: TextForm) -> tuple[GrantEffect | None, Grant | None]:
    """Return the effect of what the form says, or the grant if it was to be given."""
    unit_id, role = _place_and_role(form)
    name = form.text("username")
    user = users.visible_users(request.actor).filter(username__iexact=name).first()
    if user is None:
        form.say("username", "no_such_person", {"user": name[:40]})
    if user is None or role is None or not form.is_valid:
        return None, None
    wanted: dict[str, Any] = {
        "actor": request.actor,
        "user": user,
        "role": role,
        "unit_id": unit_id,
        "now": now(),
    }
    try:
        if request.POST.get("action") == "apply":
            return None, grants.give_grant(**wanted, reason=form.text("reason"))
        return org_preview.preview_grant(**wanted), None
    except (Invalid, Conflict, Denied) as error:
        form.take(error, NAMES)
        return None, None


@page
def revoke(request: PageRequest, grant_id: UUID) -> HttpResponse:
    """Show what somebody would lose without a role; take it when told to."""
    found = grants.visible_grants(request.actor).select_related("user", "unit")
    grant = found.filter(id=grant_id).first()
    if grant is None:
        raise NotFound("grant")
    form = forms.form_of(request.POST if request.method == "POST" else {}, "reason")
    effect = None
    try:
        if request.method == "POST":
            grants.revoke_grant(
                actor=request.actor, grant_id=grant_id, now=now(), reason=form.text("reason")
            )
            messages.success(request, _("The role is gone; pages and sockets follow in seconds."))
            return HttpResponseRedirect(reverse("pages:person", args=[grant.user_id]))
        effect = org_preview.preview_revoke(actor=request.actor, grant_id=grant_id, now=now())
    except (Invalid, Conflict, Denied) as error:
        form.take(error)
    context = {"grant": grant, "person": grant.user, "form": form, "effect": effect}
    return render_page(
        request, "admin_people/revoke.html", context, section=SECTION, status=form.status
    )
