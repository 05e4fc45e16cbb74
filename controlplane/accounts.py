"""How people get accounts: an administrator makes them, or the organisation's sign-on does."""

import base64
import hashlib
from datetime import UTC, datetime

from allauth.account.adapter import DefaultAccountAdapter
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.models import SocialLogin
from cryptography.fernet import Fernet
from django.conf import settings
from django.db import transaction
from django.http import HttpRequest
from django.urls import reverse

from controlplane import first_login
from controlplane.sessions import note_origin
from tenants.domain import users
from tenants.models import User


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc]  # allauth ships no types
    """Closes the sign-up form: a stranger's account could see nothing, yet fill tables."""

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        """Tell that nobody signs up by form."""
        return False

    def login(self, request: HttpRequest, user: User) -> None:
        """Sign somebody in, and keep from where for the list on their profile."""
        super().login(request, user)
        note_origin(request, datetime.now(UTC))

    def get_password_change_redirect_url(self, request: HttpRequest) -> str:
        """Go on to work: staying on the form looks as if nothing had happened."""
        return reverse("pages:home")

    def set_password(self, user: User, password: str) -> None:
        """Set the password that somebody chose, and forget the generated one."""
        user.must_change_password = False
        with transaction.atomic():
            super().set_password(user, password)
            users.record_own_password(user, now=datetime.now(UTC))
        first_login.forget(user.username)


class MfaAdapter(DefaultMFAAdapter):  # type: ignore[misc]  # as above
    """Keeps the seeds of second factors sealed in the database, under the installation's key."""

    def encrypt(self, text: str) -> str:
        """Seal a seed."""
        return _sealer().encrypt(text.encode()).decode()

    def decrypt(self, encrypted_text: str) -> str:
        """Open a seed; one sealed under another key lets nobody in."""
        return _sealer().decrypt(encrypted_text.encode()).decode()


def _sealer() -> Fernet:
    """Return what seals seeds, by a key that is derived from SECRET_KEY for this alone."""
    digest = hashlib.sha256(b"terrace second factor\0" + settings.SECRET_KEY.encode()).digest()
    return Fernet(base64.urlsafe_b64encode(digest))


class SocialAccountAdapter(DefaultSocialAccountAdapter):  # type: ignore[misc]  # as above
    """Lets the configured OpenID Connect provider make accounts; grants are given afterwards."""

    def is_open_for_signup(self, request: HttpRequest, sociallogin: SocialLogin) -> bool:
        """Tell that whoever the provider vouches for may come in."""
        return True
