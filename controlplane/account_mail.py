"""One-use links for people: their address, and the mail that brings it where mail is set up."""

from __future__ import annotations

import smtplib

import structlog
from django.conf import settings
from django.core.mail import send_mail
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import translation

from tenants.models import AccountLink

log = structlog.get_logger(__name__)


def address_of(secret: str) -> str:
    """Return the whole address that a link's secret stands for."""
    return settings.PUBLIC_URL + reverse("pages:account_link", args=[secret])


def is_mail_set_up() -> bool:
    """Tell whether this installation sends mail (TERRACE_MAIL_HOST)."""
    return bool(settings.EMAIL_HOST)


def mail_link(link: AccountLink, secret: str) -> bool:
    """Send a link to its person; return whether it was sent, since it can be passed on by hand.

    Sent here and not by the relay: the secret would otherwise have to be kept until then.
    """
    user = link.user
    if not is_mail_set_up() or not user.email:
        return False
    context = {
        "user": user,
        "link": link,
        "address": address_of(secret),
        "installation": settings.PUBLIC_URL,
    }
    with translation.override(user.language or settings.LANGUAGE_CODE):
        subject = render_to_string(f"emails/{link.purpose}_subject.txt", context).strip()
        text = render_to_string(f"emails/{link.purpose}.txt", context)
    try:
        send_mail(subject, text, None, [user.email])
    except (smtplib.SMTPException, OSError) as error:
        log.warning("mail_not_sent", purpose=link.purpose, user=str(user.id), error=str(error))
        return False
    return True
