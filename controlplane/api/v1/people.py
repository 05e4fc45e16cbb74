"""People: accounts, grants, tokens, the audit trail."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane import account_mail
from controlplane.api import etag, pagination
from controlplane.api.base import ApiView
from controlplane.api.fields import ActIn, ReasonField, StrictSerializer
from controlplane.api.schema import listing, problems
from controlplane.api.v1.jobs import plain
from scheduling.domain import org_preview
from scheduling.domain.org_preview import GrantEffect, UserChange
from scheduling.domain.queries.people import state_of
from tenants.domain import account_links, grants, tokens, users
from tenants.domain.access import Verb, require
from tenants.domain.errors import Invalid, Problem
from tenants.models import AccountLink, GrantRole, OrgUnit, User

DEFAULT_TOKEN_DAYS = 90


class UserOut(serializers.Serializer[Any]):
    """An account."""

    id = serializers.UUIDField()
    username = serializers.CharField()
    email = serializers.CharField()
    first_name = serializers.CharField()
    last_name = serializers.CharField()
    is_active = serializers.BooleanField()
    is_service = serializers.BooleanField()
    home_unit_id = serializers.UUIDField(
        source="home_id",
        allow_null=True,
        help_text="Of a service account the unit that owns it; else who looks after it now.",
    )
    state = serializers.SerializerMethodField(help_text="active, invited, disabled or removed.")
    removed_at = serializers.DateTimeField(allow_null=True)
    version = serializers.IntegerField()

    def get_state(self, user: User) -> str:
        """Say what became of the account."""
        return state_of(user).value


class UserIn(StrictSerializer):
    """A new account with its first grant, without which nobody would see it."""

    username = serializers.CharField(max_length=150)
    email = serializers.EmailField(required=False, allow_blank=True, default="")
    first_name = serializers.CharField(max_length=150, required=False, default="")
    last_name = serializers.CharField(max_length=150, required=False, default="")
    password = serializers.CharField(
        max_length=128, required=False, allow_null=True, default=None, write_only=True
    )
    is_service = serializers.BooleanField(default=False)
    invite = serializers.BooleanField(
        default=False, help_text="Answer with a one-use link for choosing a password."
    )
    role = serializers.ChoiceField(GrantRole.choices)
    unit_id = serializers.UUIDField(required=False, allow_null=True, default=None)
    reason = ReasonField()


class UserPatchIn(StrictSerializer):
    """Whether an account may sign in; or its address and names."""

    is_active = serializers.BooleanField(required=False)
    email = serializers.EmailField(required=False, allow_blank=True)
    first_name = serializers.CharField(max_length=150, required=False, allow_blank=True)
    last_name = serializers.CharField(max_length=150, required=False, allow_blank=True)
    reason = ReasonField()

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Want one kind of change: each has its own line in the audit trail."""
        is_profile = bool(attrs.keys() & {"email", "first_name", "last_name"})
        if is_profile == ("is_active" in attrs):
            raise serializers.ValidationError(
                "Change is_active, or email, first_name and last_name.", "one_of"
            )
        return attrs


class LinkOut(serializers.Serializer[Any]):
    """A one-use link for choosing a password; `url` is shown only in the first reply."""

    user_id = serializers.UUIDField()
    purpose = serializers.CharField()
    expires_at = serializers.DateTimeField()
    is_mailed = serializers.BooleanField(required=False, read_only=True)
    url = serializers.CharField(required=False, read_only=True)


class UserMadeOut(UserOut):
    """A new account, with the link of an invitation."""

    link = LinkOut(required=False, read_only=True)


class UserPreviewIn(StrictSerializer):
    """What might be done to an account."""

    change = serializers.ChoiceField([one.value for one in UserChange])


class UserEffectOut(serializers.Serializer[Any]):
    """What an account has: all of it ends with `remove`; jobs go on in any case."""

    change = serializers.CharField()
    grants = serializers.IntegerField()
    tokens = serializers.IntegerField()
    sessions = serializers.IntegerField()
    factors = serializers.IntegerField()
    waiting = serializers.IntegerField()
    running = serializers.IntegerField()


class UsersView(ApiView):
    """The accounts."""

    @extend_schema(operation_id="users_list", responses=problems({200: listing(UserOut)}, 422))
    def get(self, request: Request) -> Response:
        """List yourself and the accounts of units where you may read grants."""
        found = users.visible_users(self.actor)
        items, after = pagination.page(found, ("username", "id"), request)
        return self.listed(list(UserOut(items, many=True).data), after)

    @extend_schema(
        operation_id="users_create",
        request=UserIn,
        responses=problems({201: UserMadeOut}, 403, 404, 409, 422),
    )
    def post(self, request: Request) -> Response:
        """Make an account; with `invite`, its person chooses a password by the link."""
        del request
        wanted = self.read(UserIn)
        made: list[tuple[AccountLink, str]] = []
        fields = {**wanted, "role": GrantRole(wanted["role"])}
        is_invited = fields.pop("invite")

        def create() -> tuple[int, dict[str, Any]]:
            common: dict[str, Any] = {
                "actor": self.actor,
                "now": self.now,
                "request_id": self.request_id,
            }
            if not is_invited:
                return 201, dict(UserOut(users.create_user(**fields, **common)).data)
            _require_person(fields)
            made.append(account_links.invite_user(**fields, **common))
            link, _ = made[0]
            return 201, {**UserOut(link.user).data, "link": dict(LinkOut(link).data)}

        reply = self.once(create)
        if made:
            reply.data = {**reply.data, "link": _with_address(*made[0])}
        return reply


def _require_person(fields: dict[str, Any]) -> None:
    """Refuse an invitation with a password, or of a service account; take both out otherwise."""
    problems_found = []
    if fields.pop("password") is not None:
        problems_found.append(Problem("password", "invited_chooses", {}))
    if fields.pop("is_service"):
        problems_found.append(Problem("invite", "service_signs_in_by_token", {}))
    if problems_found:
        raise Invalid(problems_found)


def _with_address(link: AccountLink, secret: str) -> dict[str, Any]:
    """Write a link with its address, and send it where mail is set up."""
    is_mailed = account_mail.mail_link(link, secret)
    return {**LinkOut(link).data, "is_mailed": is_mailed, "url": account_mail.address_of(secret)}


class UserView(ApiView):
    """Base of the views of one account."""

    def reply(self, user: User) -> Response:
        """Answer with an account and its entity tag."""
        return Response(UserOut(user).data, headers={"ETag": etag.tag(user.version)})


class UserDetailView(UserView):
    """One account."""

    @extend_schema(operation_id="users_read", responses=problems({200: UserOut}, 404))
    def get(self, request: Request, user_id: UUID) -> Response:
        """Show one account."""
        del request
        return self.reply(users.visible_user(self.actor, user_id))

    @extend_schema(
        operation_id="users_update",
        request=UserPatchIn,
        parameters=[OpenApiParameter("If-Match", str, OpenApiParameter.HEADER)],
        responses=problems({200: UserOut}, 403, 404, 409, 412, 422),
    )
    def patch(self, request: Request, user_id: UUID) -> Response:
        """Disable an account (its sessions end within seconds), enable it again, or edit it."""
        wanted = self.read(UserPatchIn)
        user = users.visible_user(self.actor, user_id)
        common: dict[str, Any] = {
            "actor": self.actor,
            "user_id": user_id,
            "expected_version": etag.expected_version(request),
            "now": self.now,
            "reason": wanted["reason"],
            "request_id": self.request_id,
        }
        if "is_active" in wanted:
            change = users.enable_user if wanted["is_active"] else users.disable_user
            return self.reply(change(**common))
        names = ("email", "first_name", "last_name")
        profile = {name: wanted.get(name, getattr(user, name)) for name in names}
        return self.reply(users.edit_user(**common, **profile))

    @extend_schema(
        operation_id="users_delete",
        parameters=[OpenApiParameter("If-Match", str, OpenApiParameter.HEADER)],
        responses=problems({204: None}, 403, 404, 409, 412),
    )
    def delete(self, request: Request, user_id: UUID) -> Response:
        """Take grants, tokens, sessions and password from an account; its jobs go on."""
        users.visible_user(self.actor, user_id)
        users.remove_user(
            actor=self.actor,
            user_id=user_id,
            expected_version=etag.expected_version(request),
            now=self.now,
            request_id=self.request_id,
        )
        return Response(status=204)


class UserPreviewView(UserView):
    """What a change of an account would do."""

    @extend_schema(
        operation_id="users_preview",
        request=UserPreviewIn,
        responses=problems({200: UserEffectOut}, 403, 404, 409, 422),
    )
    def post(self, request: Request, user_id: UUID) -> Response:
        """Say what the account has that would end; nothing is written."""
        del request
        effect = org_preview.preview_user(
            actor=self.actor,
            user_id=user_id,
            change=UserChange(self.read(UserPreviewIn)["change"]),
            now=self.now,
        )
        document = {**plain(effect), "grants": len(effect.grants), "change": effect.change.value}
        return Response(UserEffectOut(document).data)


class UserLinkView(UserView):
    """One-use links for choosing a password."""

    is_reset: bool = False

    @extend_schema(request=ActIn, responses=problems({201: LinkOut}, 403, 404, 409, 422))
    def post(self, request: Request, user_id: UUID) -> Response:
        """Make a link; by a reset the old password is of no use and all sessions end."""
        del request
        wanted = self.read(ActIn)
        users.visible_user(self.actor, user_id)
        make = account_links.reset_password if self.is_reset else account_links.invite_again
        made: list[tuple[AccountLink, str]] = []

        def act() -> tuple[int, dict[str, Any]]:
            made.append(
                make(
                    actor=self.actor,
                    user_id=user_id,
                    now=self.now,
                    reason=wanted["reason"],
                    request_id=self.request_id,
                )
            )
            return 201, dict(LinkOut(made[0][0]).data)

        reply = self.once(act)
        if made:
            reply.data = _with_address(*made[0])
        return reply


class UserActionView(UserView):
    """Acts on an account that answer with the account."""

    act: Any = None

    @extend_schema(request=ActIn, responses=problems({200: UserOut}, 403, 404, 409, 422))
    def post(self, request: Request, user_id: UUID) -> Response:
        """Sign an account out everywhere, or take its second factor."""
        del request
        wanted = self.read(ActIn)
        users.visible_user(self.actor, user_id)

        def act() -> tuple[int, dict[str, Any]]:
            self.act(
                actor=self.actor,
                user_id=user_id,
                now=self.now,
                reason=wanted["reason"],
                request_id=self.request_id,
            )
            return 200, dict(UserOut(users.visible_user(self.actor, user_id)).data)

        return self.once(act)


class GrantOut(serializers.Serializer[Any]):
    """A role of a user on a unit and all below it; without a unit, on the installation."""

    id = serializers.UUIDField()
    user_id = serializers.UUIDField()
    username = serializers.CharField(source="user.username")
    role = serializers.CharField()
    unit_id = serializers.UUIDField(allow_null=True)
    created_at = serializers.DateTimeField()


class GrantIn(StrictSerializer):
    """A new grant."""

    user_id = serializers.UUIDField()
    role = serializers.ChoiceField(GrantRole.choices)
    unit_id = serializers.UUIDField(required=False, allow_null=True, default=None)
    reason = ReasonField()


class GrantsView(ApiView):
    """The grants."""

    @extend_schema(
        operation_id="grants_list",
        parameters=[OpenApiParameter("user", description="A user name.")],
        responses=problems({200: listing(GrantOut)}, 422),
    )
    def get(self, request: Request) -> Response:
        """List the grants that you may read, the newest first."""
        found = grants.visible_grants(self.actor).select_related("user")
        if name := request.query_params.get("user"):
            found = found.filter(user__username__iexact=name)
        items, after = pagination.page(found, ("-created_at", "-id"), request)
        return self.listed(list(GrantOut(items, many=True).data), after)

    @extend_schema(
        operation_id="grants_create",
        request=GrantIn,
        responses=problems({201: GrantOut}, 403, 404, 409, 422),
    )
    def post(self, request: Request) -> Response:
        """Give a role; never one above your own, nor outside your units."""
        del request
        wanted = self.read(GrantIn)

        def give() -> tuple[int, dict[str, Any]]:
            grant = grants.give_grant(
                actor=self.actor,
                user=users.visible_user(self.actor, wanted["user_id"]),
                role=GrantRole(wanted["role"]),
                unit_id=wanted["unit_id"],
                now=self.now,
                reason=wanted["reason"],
                request_id=self.request_id,
            )
            return 201, dict(GrantOut(grant).data)

        return self.once(give)


class SightOut(serializers.Serializer[Any]):
    """Things of one kind (unit, queue, job, person) that become visible or invisible."""

    what = serializers.CharField()
    count = serializers.IntegerField()
    names = serializers.ListField(child=serializers.CharField(), help_text="The first few of them.")


class GrantEffectOut(serializers.Serializer[Any]):
    """What a grant gives its person, or its revocation takes."""

    user_id = serializers.UUIDField()
    role = serializers.CharField()
    unit_id = serializers.UUIDField(allow_null=True)
    verbs = serializers.ListField(child=serializers.CharField())
    sight = SightOut(many=True)
    jobs_left = serializers.IntegerField()
    tokens = serializers.IntegerField()
    sessions = serializers.IntegerField()


def _written(effect: GrantEffect) -> dict[str, Any]:
    return {
        "user_id": effect.user.id,
        "role": effect.role.value,
        "unit_id": effect.unit.id if effect.unit else None,
        "verbs": [verb.value for verb in effect.verbs],
        "sight": SightOut(effect.sight, many=True).data,
        "jobs_left": effect.jobs_left,
        "tokens": effect.tokens,
        "sessions": effect.sessions,
    }


class GrantPreviewView(ApiView):
    """What a grant would give."""

    @extend_schema(
        operation_id="grants_preview",
        request=GrantIn,
        responses=problems({200: GrantEffectOut}, 403, 404, 409, 422),
    )
    def post(self, request: Request) -> Response:
        """Say what the person could do and see with the grant; nothing is written."""
        del request
        wanted = self.read(GrantIn)
        effect = org_preview.preview_grant(
            actor=self.actor,
            user=users.visible_user(self.actor, wanted["user_id"]),
            role=GrantRole(wanted["role"]),
            unit_id=wanted["unit_id"],
            now=self.now,
        )
        return Response(_written(effect))


class GrantDetailView(ApiView):
    """One grant."""

    @extend_schema(
        operation_id="grants_preview_revoke",
        responses=problems({200: GrantEffectOut}, 403, 404, 409),
    )
    def get(self, request: Request, grant_id: UUID) -> Response:
        """Say what the person would lose without the grant; nothing is written."""
        del request
        effect = org_preview.preview_revoke(actor=self.actor, grant_id=grant_id, now=self.now)
        return Response(_written(effect))

    @extend_schema(operation_id="grants_delete", responses=problems({204: None}, 403, 404, 409))
    def delete(self, request: Request, grant_id: UUID) -> Response:
        """Take a grant back; pages and sockets of the user follow within seconds."""
        del request
        grants.revoke_grant(
            actor=self.actor, grant_id=grant_id, now=self.now, request_id=self.request_id
        )
        return Response(status=204)


class TokenOut(serializers.Serializer[Any]):
    """An API token; `secret` is shown only in the first reply."""

    id = serializers.UUIDField()
    user_id = serializers.UUIDField()
    name = serializers.CharField()
    prefix = serializers.CharField()
    verbs = serializers.ListField(child=serializers.CharField())
    unit_id = serializers.UUIDField(allow_null=True)
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField()
    revoked_at = serializers.DateTimeField(allow_null=True)
    last_used_at = serializers.DateTimeField(allow_null=True)
    secret = serializers.CharField(required=False, read_only=True)


class TokenIn(StrictSerializer):
    """A new token: a subset of its owner's rights."""

    name = serializers.CharField(max_length=100)
    user_id = serializers.UUIDField(
        required=False, allow_null=True, default=None, help_text="A service account; else you."
    )
    verbs = serializers.ListField(
        child=serializers.CharField(max_length=40), required=False, default=list, max_length=100
    )
    unit_id = serializers.UUIDField(required=False, allow_null=True, default=None)
    expires_at = serializers.DateTimeField(required=False)


class TokensView(ApiView):
    """The API tokens."""

    @extend_schema(operation_id="tokens_list", responses=problems({200: listing(TokenOut)}, 422))
    def get(self, request: Request) -> Response:
        """List your tokens and those of people in units that you administer."""
        found = tokens.visible_tokens(self.actor)
        items, after = pagination.page(found, ("-created_at", "-id"), request)
        return self.listed(list(TokenOut(items, many=True).data), after)

    @extend_schema(
        operation_id="tokens_create",
        request=TokenIn,
        responses=problems({201: TokenOut}, 403, 404, 422),
    )
    def post(self, request: Request) -> Response:
        """Make a token; its secret is in this reply and nowhere else."""
        del request
        wanted = self.read(TokenIn)
        secrets: list[str] = []

        def create() -> tuple[int, dict[str, Any]]:
            token, secret = tokens.create_token(
                actor=self.actor,
                user=self._owner(wanted["user_id"]),
                name=wanted["name"],
                verbs=wanted["verbs"],
                unit=self._unit(wanted["unit_id"]),
                expires_at=wanted.get("expires_at", self.now + timedelta(days=DEFAULT_TOKEN_DAYS)),
                now=self.now,
                request_id=self.request_id,
            )
            secrets.append(secret)
            return 201, dict(TokenOut(token).data)

        reply = self.once(create)
        if secrets:
            reply.data = {**reply.data, "secret": secrets[0]}
        return reply

    def _owner(self, user_id: UUID | None) -> User:
        if user_id is None:
            return self.user
        return users.visible_user(self.actor, user_id)

    def _unit(self, unit_id: UUID | None) -> OrgUnit | None:
        if unit_id is None:
            return None
        require(self.actor, Verb.ORG_READ, unit_id, what="org unit")
        return OrgUnit.objects.get(id=unit_id)


class TokenDetailView(ApiView):
    """One API token."""

    @extend_schema(operation_id="tokens_delete", responses=problems({204: None}, 403, 404))
    def delete(self, request: Request, token_id: UUID) -> Response:
        """Revoke a token; it is refused from now on."""
        del request
        tokens.revoke_token(
            actor=self.actor, token_id=token_id, now=self.now, request_id=self.request_id
        )
        return Response(status=204)
