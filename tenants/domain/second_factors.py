"""Records what people change of their own second factors, which allauth's pages do for them."""

from __future__ import annotations

from typing import Any

from allauth.mfa.models import Authenticator
from allauth.mfa.signals import authenticator_removed
from django.db.models.signals import post_save
from django.utils import timezone

from tenants.domain import users


def connect() -> None:
    """Listen, from the start of the program on.

    allauth tells of an addition after its transaction; the row itself is heard of inside it. An
    administrator's removal (`users.remove_second_factor`) is not told here and records itself.
    """
    post_save.connect(_added, sender=Authenticator, dispatch_uid="audit_factor_added")
    authenticator_removed.connect(_removed, dispatch_uid="audit_factor_removed")


def _added(*, instance: Authenticator, created: bool, **_: Any) -> None:
    if created:
        users.record_own_factor(instance.user, added=str(instance.type), now=timezone.now())


def _removed(*, authenticator: Authenticator, **_: Any) -> None:
    kind = str(authenticator.type)
    users.record_own_factor(authenticator.user, removed=kind, now=timezone.now())
