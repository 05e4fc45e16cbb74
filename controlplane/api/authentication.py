"""Who calls the API: a browser's session, or a token in `Authorization: Bearer trc_...`."""

from __future__ import annotations

from django.utils import timezone
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from tenants.domain import tokens
from tenants.models import ApiToken, User


class TokenAuthentication(BaseAuthentication):
    """Accepts API tokens; without one it leaves the request to the session."""

    def authenticate(self, request: Request) -> tuple[User, ApiToken] | None:
        """Return the token's user and the token.

        Raises:
            AuthenticationFailed: a bearer token was sent that is not in force.
        """
        word, _, secret = get_authorization_header(request).partition(b" ")
        if word.lower() != b"bearer":
            return None
        found = tokens.authenticate(secret.decode("latin-1").strip(), timezone.now())
        if found is None:
            raise AuthenticationFailed(
                "The token is unknown, expired or revoked.", code="token_refused"
            )
        return found

    def authenticate_header(self, request: Request) -> str:
        """Say how to sign in; this makes a refusal a 401."""
        del request
        return 'Bearer realm="Terrace"'
