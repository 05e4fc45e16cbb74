"""The organisation: units, users, grants, tokens, the audit trail, and who you are."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.api import etag, pagination
from controlplane.api.base import ApiView
from controlplane.api.fields import ReasonField, StrictSerializer
from controlplane.api.schema import listing, problems
from scheduling.domain import queues
from scheduling.domain.queries.activity import list_activity
from tenants.domain import grants, org, tokens, users
from tenants.domain.access import Verb, reads, require
from tenants.domain.errors import NotFound
from tenants.models import (
    GrantRole,
    OrgClosure,
    OrgUnit,
    OrgUnitKind,
    User,
)

DEFAULT_TOKEN_DAYS = 90


class UnitOut(serializers.Serializer[Any]):
    """An org unit."""

    id = serializers.UUIDField()
    parent_id = serializers.UUIDField(allow_null=True)
    tenant_id = serializers.UUIDField()
    name = serializers.CharField()
    kind = serializers.CharField()
    is_archived = serializers.BooleanField()
    created_at = serializers.DateTimeField()
    version = serializers.IntegerField()


class UnitIn(StrictSerializer):
    """A new org unit; without a parent, a tenant."""

    name = serializers.CharField(max_length=100)
    kind = serializers.ChoiceField(OrgUnitKind.choices, default=OrgUnitKind.TEAM.value)
    parent_id = serializers.UUIDField(required=False, allow_null=True, default=None)
    reason = ReasonField()


class UnitPatchIn(StrictSerializer):
    """One change of a unit: its name, its parent, or whether it is archived."""

    name = serializers.CharField(max_length=100, required=False)
    parent_id = serializers.UUIDField(required=False)
    is_archived = serializers.BooleanField(required=False)
    reason = ReasonField()

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Want one change: each has its own right and its own line in the audit trail."""
        if len(attrs.keys() & {"name", "parent_id", "is_archived"}) != 1:
            raise serializers.ValidationError(
                "Change one of name, parent_id and is_archived at a time.", "one_of"
            )
        return attrs


class UnitView(ApiView):
    """Base of the views of units."""

    def load(self, unit_id: UUID) -> OrgUnit:
        """Return a unit that the actor may read.

        Raises:
            NotFound: there is none.
        """
        require(self.actor, Verb.ORG_READ, unit_id, what="org unit")
        return OrgUnit.objects.get(id=unit_id)

    def reply(self, unit: OrgUnit, status: int = 200) -> Response:
        """Answer with a unit and its entity tag."""
        headers = {"ETag": etag.tag(unit.version)}
        return Response(UnitOut(unit).data, status=status, headers=headers)


class UnitsView(UnitView):
    """The org units."""

    @extend_schema(operation_id="units_list", responses=problems({200: listing(UnitOut)}, 422))
    def get(self, request: Request) -> Response:
        """List the units that you may read."""
        scope = reads(self.actor, Verb.ORG_READ)
        units = OrgUnit.objects.all()
        if not scope.sees_everything:
            below = OrgClosure.objects.filter(ancestor__in=scope.readable_units)
            units = units.filter(id__in=below.values("descendant_id"))
        items, after = pagination.page(units, ("name", "id"), request)
        return self.listed(list(UnitOut(items, many=True).data), after)

    @extend_schema(
        operation_id="units_create",
        request=UnitIn,
        responses=problems({201: UnitOut}, 403, 404, 409, 422),
    )
    def post(self, request: Request) -> Response:
        """Make a unit."""
        del request
        wanted = self.read(UnitIn)

        def create() -> tuple[int, dict[str, Any]]:
            unit = org.create_unit(
                actor=self.actor,
                parent_id=wanted["parent_id"],
                name=wanted["name"],
                kind=OrgUnitKind(wanted["kind"]),
                now=self.now,
                reason=wanted["reason"],
                request_id=self.request_id,
            )
            return 201, dict(UnitOut(unit).data)

        return self.once(create)


class UnitDetailView(UnitView):
    """One org unit."""

    @extend_schema(operation_id="units_read", responses=problems({200: UnitOut}, 404))
    def get(self, request: Request, unit_id: UUID) -> Response:
        """Show one unit."""
        del request
        return self.reply(self.load(unit_id))

    @extend_schema(
        operation_id="units_update",
        request=UnitPatchIn,
        parameters=[OpenApiParameter("If-Match", str, OpenApiParameter.HEADER, required=True)],
        responses=problems({200: UnitOut}, 403, 404, 409, 412, 422, 428),
    )
    def patch(self, request: Request, unit_id: UUID) -> Response:
        """Rename, move, archive or restore a unit; its queues move along."""
        wanted = self.read(UnitPatchIn)
        self.load(unit_id)
        given: dict[str, Any] = {
            "actor": self.actor,
            "unit_id": unit_id,
            "expected_version": etag.required_version(request),
            "now": self.now,
            "reason": wanted["reason"],
            "request_id": self.request_id,
        }
        if "name" in wanted:
            unit = org.rename_unit(**given, name=wanted["name"])
        elif "parent_id" in wanted:
            unit = queues.move_unit(**given, parent_id=wanted["parent_id"])
        elif wanted["is_archived"]:
            unit = queues.archive_unit(**given)
        else:
            unit = org.restore_unit(**given)
        return self.reply(unit)


class UserOut(serializers.Serializer[Any]):
    """An account."""

    id = serializers.UUIDField()
    username = serializers.CharField()
    email = serializers.CharField()
    first_name = serializers.CharField()
    last_name = serializers.CharField()
    is_active = serializers.BooleanField()
    is_service = serializers.BooleanField()


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
    role = serializers.ChoiceField(GrantRole.choices)
    unit_id = serializers.UUIDField(required=False, allow_null=True, default=None)
    reason = ReasonField()


class UserPatchIn(StrictSerializer):
    """Whether an account may sign in."""

    is_active = serializers.BooleanField()
    reason = ReasonField()


class UsersView(ApiView):
    """The accounts."""

    @extend_schema(operation_id="users_list", responses=problems({200: listing(UserOut)}, 422))
    def get(self, request: Request) -> Response:
        """List yourself and the people who have grants where you may read grants."""
        seen = grants.visible_grants(self.actor).values("user_id")
        found = User.objects.filter(id__in=seen)
        items, after = pagination.page(found, ("username", "id"), request)
        return self.listed(list(UserOut(items, many=True).data), after)

    @extend_schema(
        operation_id="users_create",
        request=UserIn,
        responses=problems({201: UserOut}, 403, 404, 409, 422),
    )
    def post(self, request: Request) -> Response:
        """Make an account."""
        del request
        wanted = self.read(UserIn)

        def create() -> tuple[int, dict[str, Any]]:
            user = users.create_user(
                **{**wanted, "role": GrantRole(wanted["role"])},
                actor=self.actor,
                now=self.now,
                request_id=self.request_id,
            )
            return 201, dict(UserOut(user).data)

        return self.once(create)


class UserDetailView(ApiView):
    """One account."""

    def load(self, user_id: UUID) -> User:
        """Return an account that the actor may see.

        Raises:
            NotFound: there is none.
        """
        seen = grants.visible_grants(self.actor).filter(user_id=user_id)
        if user_id != self.actor.user_id and not seen.exists():
            raise NotFound("user")
        return User.objects.get(id=user_id)

    @extend_schema(operation_id="users_read", responses=problems({200: UserOut}, 404))
    def get(self, request: Request, user_id: UUID) -> Response:
        """Show one account."""
        del request
        return Response(UserOut(self.load(user_id)).data)

    @extend_schema(
        operation_id="users_update",
        request=UserPatchIn,
        responses=problems({200: UserOut}, 403, 404, 409, 422),
    )
    def patch(self, request: Request, user_id: UUID) -> Response:
        """Disable an account (its sessions end within seconds), or enable it again."""
        del request
        wanted = self.read(UserPatchIn)
        self.load(user_id)
        change = users.enable_user if wanted["is_active"] else users.disable_user
        user = change(
            actor=self.actor,
            user_id=user_id,
            now=self.now,
            reason=wanted["reason"],
            request_id=self.request_id,
        )
        return Response(UserOut(user).data)


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
            user = User.objects.filter(id=wanted["user_id"]).first()
            if user is None:
                raise NotFound("user")
            grant = grants.give_grant(
                actor=self.actor,
                user=user,
                role=GrantRole(wanted["role"]),
                unit_id=wanted["unit_id"],
                now=self.now,
                reason=wanted["reason"],
                request_id=self.request_id,
            )
            return 201, dict(GrantOut(grant).data)

        return self.once(give)


class GrantDetailView(ApiView):
    """One grant."""

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
        seen = grants.visible_grants(self.actor).filter(user_id=user_id)
        if not seen.exists():
            raise NotFound("user")
        return User.objects.get(id=user_id)

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


class AuditOut(serializers.Serializer[Any]):
    """One change by a person or client."""

    id = serializers.IntegerField()
    at = serializers.DateTimeField()
    actor = serializers.CharField(source="actor_label")
    action = serializers.CharField()
    subject_type = serializers.CharField()
    subject_id = serializers.CharField()
    subject_label = serializers.CharField()
    unit_id = serializers.UUIDField(allow_null=True)
    before = serializers.JSONField()
    after = serializers.JSONField()
    reason = serializers.CharField()
    request_id = serializers.CharField()


class AuditView(ApiView):
    """The audit trail."""

    @extend_schema(
        operation_id="audit_list",
        parameters=[
            OpenApiParameter("action", description="How it begins, such as `queue.`."),
            OpenApiParameter("person", description="A user name."),
            OpenApiParameter("before", int, description="Only rows before this id."),
        ],
        responses=problems({200: listing(AuditOut)}, 422),
    )
    def get(self, request: Request) -> Response:
        """List what was changed in your units, and what you did, the newest first."""
        given = request.query_params
        before = given.get("after") or given.get("before") or ""
        found = list_activity(
            self.actor,
            action=given.get("action", ""),
            person=given.get("person", ""),
            before=pagination.number_of("before", before) if before else None,
            limit=pagination.limit_of(request),
        )
        return self.listed(list(AuditOut(found.rows, many=True).data), found.next_cursor or None)


class MeOut(UserOut):
    """You, your grants, and what your token leaves of them."""

    time_zone = serializers.CharField()
    language = serializers.CharField()
    grants = GrantOut(many=True)
    token_verbs = serializers.ListField(child=serializers.CharField(), allow_null=True)


class MeView(ApiView):
    """Who you are."""

    @extend_schema(operation_id="me", responses=problems({200: MeOut}))
    def get(self, request: Request) -> Response:
        """Show your account and rights."""
        del request
        held = self.user.grants.select_related("user").order_by("created_at", "id")
        verbs = self.actor.verbs
        return Response(
            {
                **UserOut(self.user).data,
                "time_zone": self.user.time_zone,
                "language": self.user.language,
                "grants": GrantOut(held, many=True).data,
                "token_verbs": None if verbs is None else sorted(verbs),
            }
        )
