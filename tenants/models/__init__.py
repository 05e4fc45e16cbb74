"""Tables of the organisation: units, users, grants, tokens, audit, outbox, idempotency keys."""

from tenants.models.account_link import AccountLink, LinkPurpose
from tenants.models.audit import AuditRow, AuditSeal
from tenants.models.browser_session import BrowserSession
from tenants.models.grant import Grant, GrantRole
from tenants.models.idempotency import IdempotencyKey
from tenants.models.org import OrgClosure, OrgUnit, OrgUnitKind
from tenants.models.outbox import OutboxRow
from tenants.models.personal import NotificationChoice, SavedView
from tenants.models.secret import Secret, SecretKind
from tenants.models.socket_ticket import SocketTicket
from tenants.models.token import ApiToken
from tenants.models.user import User
from tenants.models.webhook import Webhook

__all__ = [
    "AccountLink",
    "ApiToken",
    "AuditRow",
    "AuditSeal",
    "BrowserSession",
    "Grant",
    "GrantRole",
    "IdempotencyKey",
    "LinkPurpose",
    "NotificationChoice",
    "OrgClosure",
    "OrgUnit",
    "OrgUnitKind",
    "OutboxRow",
    "SavedView",
    "Secret",
    "SecretKind",
    "SocketTicket",
    "User",
    "Webhook",
]
