"""Roles, verbs and what became of accounts, in words."""

from collections.abc import Mapping

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from tenants.domain.access import Verb
from tenants.models import GrantRole, OrgUnitKind

ROLE_NAMES: Mapping[str, Promise] = {
    GrantRole.VIEWER: _("Viewer"),
    GrantRole.RESEARCHER: _("Researcher"),
    GrantRole.QUEUE_MANAGER: _("Queue manager"),
    GrantRole.ORG_ADMIN: _("Org admin"),
    GrantRole.AUDITOR: _("Auditor"),
    GrantRole.PLATFORM_ADMIN: _("Platform admin"),
}

ROLE_HELP: Mapping[str, Promise] = {
    GrantRole.VIEWER: _("sees units, queues, jobs and metrics"),
    GrantRole.RESEARCHER: _("submits jobs and controls their own"),
    GrantRole.QUEUE_MANAGER: _("decides the shares of the queues below, and controls their jobs"),
    GrantRole.ORG_ADMIN: _("administers units, people and queues below"),
    GrantRole.AUDITOR: _("reads everything including the record, and changes nothing"),
    GrantRole.PLATFORM_ADMIN: _("administers the whole installation"),
}

VERB_NAMES: Mapping[str, Promise] = {
    Verb.ORG_READ: _("see org units"),
    Verb.ORG_ADMIN: _("make, rename, move, merge and archive units below"),
    Verb.GRANT_READ: _("see people and their roles"),
    Verb.GRANT_EDIT: _("give and take roles"),
    Verb.USER_EDIT: _("invite, disable and remove people"),
    Verb.QUEUE_READ: _("see queues"),
    Verb.QUEUE_CREATE: _("make queues below"),
    Verb.QUEUE_EDIT: _("change shares of queues below"),
    Verb.QUEUE_STATE: _("open and close queues below"),
    Verb.QUEUE_DELETE: _("delete queues below"),
    Verb.JOB_READ: _("see jobs"),
    Verb.JOB_READ_ENV: _("see the values of jobs' variables"),
    Verb.JOB_CREATE: _("submit jobs"),
    Verb.JOB_EDIT: _("change the settings of jobs"),
    Verb.JOB_CONTROL: _("cancel, suspend, resume and retry jobs"),
    Verb.JOB_PRIORITY: _("change the priority of jobs"),
    Verb.JOB_EVENTS: _("see the events of jobs"),
    Verb.JOB_METRICS: _("see the metrics of jobs"),
    Verb.JOB_LOGS: _("read all logs and files"),
    Verb.JOB_SHARED_LOGS: _("read logs that a queue shares"),
    Verb.QUOTA_READ: _("see quotas"),
    Verb.QUOTA_EDIT: _("change quotas of units below and of people"),
    Verb.SECRET_READ: _("see the names of secrets"),
    Verb.SECRET_USE: _("use shared secrets in jobs"),
    Verb.WEBHOOK_READ: _("see webhooks"),
    Verb.WEBHOOK_EDIT: _("make, switch and remove webhooks"),
    Verb.SECRET_EDIT: _("make, replace and revoke secrets"),
    Verb.CLUSTER_READ: _("see clusters"),
    Verb.CLUSTER_ADMIN: _("administer clusters"),
    Verb.NODE_READ: _("see nodes"),
    Verb.NODE_LABELS: _("see labels and taints of nodes"),
    Verb.NODE_ADMIN: _("cordon, drain and remove nodes"),
    Verb.NODE_JOIN: _("add nodes"),
    Verb.RUNTIME_READ: _("see images and runtimes"),
    Verb.RUNTIME_ADMIN: _("change images and runtimes"),
    Verb.TOKEN_READ: _("list tokens"),
    Verb.TOKEN_CREATE: _("make tokens"),
    Verb.TOKEN_REVOKE: _("revoke tokens"),
    Verb.AUDIT_READ: _("read the record"),
    Verb.USAGE_READ: _("see usage"),
    Verb.SETTINGS_READ: _("see health and settings"),
    Verb.SETTINGS_EDIT: _("change settings"),
}

KIND_NAMES: Mapping[str, Promise] = {
    OrgUnitKind.TENANT: _("Tenant"),
    OrgUnitKind.DEPARTMENT: _("Department"),
    OrgUnitKind.TEAM: _("Team"),
    OrgUnitKind.PERSON: pgettext_lazy("kind of unit", "Person"),
}

ACCOUNT_STATES: Mapping[str, Promise] = {
    "active": pgettext_lazy("account", "Active"),
    "invited": pgettext_lazy("account", "Invited"),
    "disabled": pgettext_lazy("account", "Disabled"),
    "removed": pgettext_lazy("account", "Removed"),
}


def role_name(role: str) -> str:
    """Return the shown name of a role."""
    return str(ROLE_NAMES.get(role, role))


def verb_name(verb: str) -> str:
    """Return what a verb lets one do; the bare name if there are no words."""
    return str(VERB_NAMES.get(verb, verb))
