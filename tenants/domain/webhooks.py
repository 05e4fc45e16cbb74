"""Webhooks of org units: who makes them, what they are told, how it is signed.

A webhook hears of the jobs of its unit and of all below it. Events are posted in batches, in order:
the next batch follows when the one before was taken. What is not taken for hours is put aside as
dead, shown, and can be tried again; meanwhile the stream goes on.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils.crypto import salted_hmac

from tenants.domain import audit, outbox, web_addresses
from tenants.domain.access import Actor, Verb, may, reads, refusal, require
from tenants.domain.errors import Conflict, Invalid, NotFound, Problem
from tenants.models import OrgClosure, OrgUnit, OutboxRow, Webhook

TOPIC = "webhook"
SUBJECTS = ("job", "task", "attempt")
MOST_OF_A_UNIT = 20
LONGEST_NAME = 63
SECRET_MARK = "trh_"  # noqa: S105 -- what a signing secret begins with, no secret


@dataclass(frozen=True, slots=True)
class NewWebhook:
    """What somebody asks for."""

    name: str
    url: str
    subjects: Collection[str] = ("job",)


def create_webhook(
    *,
    actor: Actor,
    unit_id: UUID,
    new: NewWebhook,
    cursor: str,
    now: datetime,
    reason: str = "",
    request_id: str = "",
) -> tuple[Webhook, str]:
    """Make a webhook that hears what comes after `cursor`; return it and its secret, shown once.

    Raises:
        Denied, NotFound: the actor may not make webhooks there.
        Invalid: the name, address or subjects cannot be such, or the unit has too many.
    """
    require(actor, Verb.ORG_READ, unit_id, what="org unit")
    if not may(actor, Verb.WEBHOOK_EDIT, unit_id):
        raise refusal(actor, Verb.WEBHOOK_EDIT, unit_id)
    _check(new)
    with transaction.atomic():
        unit = OrgUnit.objects.select_for_update(no_key=True).get(id=unit_id)
        if Webhook.objects.filter(unit=unit).count() >= MOST_OF_A_UNIT:
            raise Invalid([Problem("$", "too_many_webhooks", {"max": MOST_OF_A_UNIT})])
        try:
            with transaction.atomic():
                webhook = Webhook.objects.create(
                    unit=unit,
                    name=new.name,
                    url=new.url,
                    subjects=[one for one in SUBJECTS if one in new.subjects],
                    cursor=cursor,
                    created_by_id=actor.user_id,
                    created_at=now,
                )
        except IntegrityError as error:
            raise Invalid([Problem("name", "taken", {"name": new.name})]) from error
        _record(actor, "webhook.create", webhook, None, now, reason=reason, request_id=request_id)
    return webhook, secret_of(webhook)


def set_active(
    *,
    actor: Actor,
    webhook_id: UUID,
    is_active: bool,
    expected_version: int,
    now: datetime,
    request_id: str = "",
) -> Webhook:
    """Let a webhook hear of events, or not; what happens meanwhile is told when it goes on.

    Raises:
        Denied, NotFound: it is not the actor's to change.
        Conflict: somebody changed it since.
    """
    with transaction.atomic():
        webhook = _to_change(actor, webhook_id, expected_version)
        before = _shown(webhook)
        webhook.is_active = is_active
        webhook.version += 1
        webhook.save(update_fields=["is_active", "version"])
        _record(actor, "webhook.switch", webhook, before, now, request_id=request_id)
    return webhook


def renew_secret(
    *, actor: Actor, webhook_id: UUID, expected_version: int, now: datetime, request_id: str = ""
) -> tuple[Webhook, str]:
    """Give a webhook a new secret, shown once; the old one signs nothing any more.

    Raises:
        Denied, NotFound: it is not the actor's to change.
        Conflict: somebody changed it since.
    """
    with transaction.atomic():
        webhook = _to_change(actor, webhook_id, expected_version)
        before = _shown(webhook)
        webhook.generation += 1
        webhook.version += 1
        webhook.save(update_fields=["generation", "version"])
        _record(actor, "webhook.renew_secret", webhook, before, now, request_id=request_id)
    return webhook, secret_of(webhook)


def remove_webhook(
    *, actor: Actor, webhook_id: UUID, expected_version: int, now: datetime, request_id: str = ""
) -> None:
    """Remove a webhook with all that it was not told yet.

    Raises:
        Denied, NotFound: it is not the actor's to change.
        Conflict: somebody changed it since.
    """
    with transaction.atomic():
        webhook = _to_change(actor, webhook_id, expected_version)
        _record(actor, "webhook.remove", webhook, _shown(webhook), now, request_id=request_id)
        OutboxRow.objects.filter(topic=TOPIC, key=str(webhook.id)).delete()
        webhook.delete()


def retry_dead(*, actor: Actor, webhook_id: UUID, now: datetime, request_id: str = "") -> int:
    """Try dead deliveries again; return how many there were.

    Raises:
        Denied, NotFound: the webhook is not the actor's to change.
    """
    with transaction.atomic():
        webhook = _to_change(actor, webhook_id, None)
        ids = list(dead_deliveries([webhook.id]).values_list("id", flat=True))
        revived = outbox.revive(ids, now)
        after = {"deliveries": revived}
        audit.record(
            actor=actor,
            action="webhook.retry",
            subject=webhook,
            before=None,
            after=after,
            unit=webhook.unit,
            now=now,
            request_id=request_id,
        )
    return revived


def visible_to(actor: Actor) -> QuerySet[Webhook]:
    """Return the webhooks of the units whose webhooks the actor may see."""
    found = Webhook.objects.select_related("unit", "created_by")
    scope = reads(actor, Verb.WEBHOOK_READ)
    if scope.sees_everything:
        return found
    below = OrgClosure.objects.filter(ancestor__in=scope.readable_units)
    return found.filter(unit__in=below.values("descendant"))


def dead_deliveries(webhook_ids: Collection[UUID]) -> QuerySet[OutboxRow]:
    """Return deliveries that were given up, the oldest first."""
    keys = [str(one) for one in webhook_ids]
    return OutboxRow.objects.filter(topic=TOPIC, key__in=keys, is_dead=True).order_by("id")


# --- telling --------------------------------------------------------------------------------------


def idle_webhooks() -> list[Webhook]:
    """Return active webhooks that wait for no answer."""
    waiting = OutboxRow.objects.filter(topic=TOPIC, is_dead=False).values_list("key", flat=True)
    busy = set(waiting)
    active = Webhook.objects.filter(is_active=True).order_by("id")
    return [webhook for webhook in active if str(webhook.id) not in busy]


def queue_delivery(
    webhook: Webhook, events: Collection[dict[str, object]], cursor: str, now: datetime
) -> None:
    """Note what a webhook is to be told next, and how far that brings it."""
    with transaction.atomic():
        if events:
            payload = {"events": list(events)}
            outbox.publish(topic=TOPIC, key=str(webhook.id), payload=payload, now=now)
        Webhook.objects.filter(id=webhook.id).update(cursor=cursor)


def delivered(row: OutboxRow, now: datetime) -> None:
    """Take note that a delivery was taken."""
    with transaction.atomic():
        outbox.done([row.id])
        Webhook.objects.filter(id=row.key).update(last_delivered_at=now, last_error="")


def not_delivered(row: OutboxRow, error: str, now: datetime) -> None:
    """Take note that a delivery was not taken: it is tried again later, or is dead."""
    with transaction.atomic():
        outbox.failed(row, error, now)
        Webhook.objects.filter(id=row.key).update(last_error=error[:300])


def secret_of(webhook: Webhook) -> str:
    """Return the secret that signs what a webhook is told."""
    salt, value = "terrace.webhook", f"{webhook.id}:{webhook.generation}"
    return SECRET_MARK + salted_hmac(salt, value, algorithm="sha256").hexdigest()


def signature(secret: str, timestamp: int, body: bytes) -> str:
    """Sign a body and the time of sending, so that neither can be replaced or replayed later."""
    signed = f"{timestamp}.".encode() + body
    return "sha256=" + hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


# --- inside ---------------------------------------------------------------------------------------


def _check(new: NewWebhook) -> None:
    problems = []
    if not 1 <= len(new.name) <= LONGEST_NAME or not new.name.isprintable():
        problems.append(Problem("name", "length", {"min": 1, "max": LONGEST_NAME}))
    unknown = sorted(set(new.subjects) - set(SUBJECTS))
    if unknown or not new.subjects:
        value, allowed = ", ".join(unknown)[:80], ", ".join(SUBJECTS)
        problems.append(Problem("subjects", "invalid_choice", {"value": value, "allowed": allowed}))
    try:
        web_addresses.check(new.url, settings.TERRACE_WEBHOOK_ALLOWED)
    except web_addresses.RefusedAddressError as error:
        problems.append(Problem("url", "webhook_url", {"why": str(error)}))
    if problems:
        raise Invalid(problems)


def _to_change(actor: Actor, webhook_id: UUID, expected_version: int | None) -> Webhook:
    rows = visible_to(actor).select_for_update(no_key=True, of=("self",))
    webhook = rows.filter(id=webhook_id).first()
    if webhook is None:
        raise NotFound("webhook")
    if not may(actor, Verb.WEBHOOK_EDIT, webhook.unit_id):
        raise refusal(actor, Verb.WEBHOOK_EDIT, webhook.unit_id)
    if expected_version is not None and webhook.version != expected_version:
        params = {"expected": expected_version, "version": webhook.version}
        raise Conflict("version", params, current=webhook)
    return webhook


def _shown(webhook: Webhook) -> dict[str, object]:
    return {
        "url": webhook.url,
        "subjects": list(webhook.subjects),
        "is_active": webhook.is_active,
        "secret": webhook.generation,
    }


def _record(
    actor: Actor,
    action: str,
    webhook: Webhook,
    before: dict[str, object] | None,
    now: datetime,
    **why: str,
) -> None:
    audit.record(
        actor=actor,
        action=action,
        subject=webhook,
        before=before,
        after=None if action == "webhook.remove" else _shown(webhook),
        unit=webhook.unit,
        now=now,
        **why,
    )
