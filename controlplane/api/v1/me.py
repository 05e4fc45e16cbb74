"""Who you are: your account, preferences and sessions."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.api.base import ApiView
from controlplane.api.fields import StrictSerializer
from controlplane.api.schema import problems, whole_list
from controlplane.api.v1.people import GrantOut, UserOut
from tenants.domain import browser_sessions, users
from tenants.domain.access import Actor
from tenants.domain.errors import Denied, Invalid, Problem


class MeOut(UserOut):
    """You, your grants, and what your token leaves of them."""

    time_zone = serializers.CharField()
    language = serializers.CharField()
    grants = GrantOut(many=True)
    token_verbs = serializers.ListField(child=serializers.CharField(), allow_null=True)


class MeIn(StrictSerializer):
    """How times and words are shown to you."""

    time_zone = serializers.CharField(max_length=64, required=False)
    language = serializers.CharField(max_length=16, required=False, allow_blank=True)


class MeView(ApiView):
    """Who you are."""

    @extend_schema(operation_id="me", responses=problems({200: MeOut}))
    def get(self, request: Request) -> Response:
        """Show your account and rights."""
        del request
        return self._reply()

    @extend_schema(
        operation_id="me_update", request=MeIn, responses=problems({200: MeOut}, 403, 422)
    )
    def patch(self, request: Request) -> Response:
        """Change your time zone and language."""
        del request
        require_person(self.actor)
        wanted = self.read(MeIn)
        user = users.set_preferences(
            actor=self.actor,
            time_zone=wanted.get("time_zone", self.user.time_zone),
            language=wanted.get("language", self.user.language),
            now=self.now,
            request_id=self.request_id,
        )
        self.user.time_zone, self.user.language = user.time_zone, user.language
        return self._reply()

    def _reply(self) -> Response:
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


class PasswordIn(StrictSerializer):
    """Your password and the new one."""

    old_password = serializers.CharField(max_length=128, write_only=True)
    new_password = serializers.CharField(max_length=128, write_only=True)


class MyPasswordView(ApiView):
    """Your password."""

    @extend_schema(
        operation_id="me_password", request=PasswordIn, responses=problems({204: None}, 403, 422)
    )
    def post(self, request: Request) -> Response:
        """Change your password; all your sessions end."""
        del request
        require_person(self.actor)
        wanted = self.read(PasswordIn)
        if not self.user.check_password(wanted["old_password"]):
            raise Invalid([Problem("old_password", "password_wrong", {})])
        users.set_password(
            actor=self.actor,
            user_id=self.user.id,
            password=wanted["new_password"],
            now=self.now,
            request_id=self.request_id,
        )
        return Response(status=204)


class SessionOut(serializers.Serializer[Any]):
    """A browser in which you are signed in."""

    id = serializers.CharField()
    created_at = serializers.DateTimeField(allow_null=True)
    expires_at = serializers.DateTimeField()
    ip = serializers.CharField()
    user_agent = serializers.CharField()
    is_current = serializers.BooleanField()


class SessionsView(ApiView):
    """Base of the views of your sessions."""

    def end(self, request: Request, session_id: str | None) -> Response:
        """End one session, or all but the one that asks."""
        require_person(self.actor)
        browser_sessions.end_own_sessions(
            actor=self.actor,
            session_id=session_id,
            current_key=_key(request),
            now=self.now,
            request_id=self.request_id,
        )
        return Response(status=204)


class MySessionsView(SessionsView):
    """Where you are signed in."""

    @extend_schema(operation_id="me_sessions", responses=problems({200: whole_list(SessionOut)}))
    def get(self, request: Request) -> Response:
        """List your sessions, the newest first."""
        found = browser_sessions.list_sessions(self.user, self.now, _key(request))
        return Response({"items": SessionOut(found, many=True).data})

    @extend_schema(operation_id="me_sessions_delete", responses=problems({204: None}, 403))
    def delete(self, request: Request) -> Response:
        """Sign out everywhere else."""
        return self.end(request, None)


class MySessionView(SessionsView):
    """One browser in which you are signed in."""

    @extend_schema(operation_id="me_session_delete", responses=problems({204: None}, 403, 404))
    def delete(self, request: Request, session_id: str) -> Response:
        """End one session."""
        return self.end(request, session_id)


def _key(request: Request) -> str | None:
    """Return the key of the browser session that asks, if one does."""
    key: str | None = request.session.session_key
    return key


def require_person(actor: Actor) -> None:
    """Refuse what only a signed-in person may do: a stolen token must not take the account over.

    Raises:
        Denied: a token asks.
    """
    if actor.token_id is not None:
        raise Denied("sign_in_for_this", {})
