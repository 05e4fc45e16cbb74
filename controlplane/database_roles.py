"""What each kind of process may do in the database, as SQL for its owner to run.

The owner migrates; web, gateway and workers sign in as roles of their own, so that a hole in one of
them is not a hole in all. What nobody may do: change or remove an audit row or a seal. The rules
name what is refused; tables that later versions add are open until they are named here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.apps import apps

AUDIT = ("tenants.AuditRow", "tenants.AuditSeal")
SIGN_IN = (
    "account",
    "mfa",
    "socialaccount",
    "sessions",
    "tenants.BrowserSession",
    "tenants.AccountLink",
)
"""How people sign in, and that they have."""
PEOPLE = (
    "tenants.User",
    "tenants.Grant",
    "tenants.ApiToken",
    "tenants.OrgUnit",
    "tenants.OrgClosure",
)
WRITE = ("INSERT", "UPDATE", "DELETE")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Rights that a role does not get on tables of models or of whole apps."""

    rights: Sequence[str]
    of: Sequence[str]


@dataclass(frozen=True, slots=True)
class Role:
    """One kind of process, and what it may not do beyond what nobody may."""

    name: str
    refusals: Sequence[Refusal] = ()


ONLY_WEB = (Refusal(("SELECT", *WRITE), SIGN_IN), Refusal(WRITE, PEOPLE))
ROLES = (
    Role("terrace_web"),
    Role("terrace_gateway", ONLY_WEB),
    Role("terrace_worker", ONLY_WEB),
)
NOBODY = Refusal(("UPDATE", "DELETE"), AUDIT)


def statements(owner: str) -> list[str]:
    """Return the statements that make the roles and give them their rights; safe to repeat.

    Args:
        owner: The role that migrations run as; what it makes later is open to the others.
    """
    found = []
    rights = ", ".join(("SELECT", *WRITE))
    quoted = owner.replace('"', '""')
    later = f'ALTER DEFAULT PRIVILEGES FOR ROLE "{quoted}" IN SCHEMA public GRANT'
    for role in ROLES:
        make = f"CREATE ROLE {role.name} LOGIN; EXCEPTION WHEN duplicate_object THEN NULL;"
        found += [
            f"DO $$ BEGIN {make} END $$",
            f"GRANT USAGE ON SCHEMA public TO {role.name}",
            f"GRANT {rights} ON ALL TABLES IN SCHEMA public TO {role.name}",
            f"GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO {role.name}",
            f"{later} {rights} ON TABLES TO {role.name}",
            f"{later} USAGE, SELECT ON SEQUENCES TO {role.name}",
        ]
        for refusal in (NOBODY, *role.refusals):
            tables = ", ".join(sorted(_tables(refusal.of)))
            found.append(f"REVOKE {', '.join(refusal.rights)} ON {tables} FROM {role.name}")
    return found


def _tables(labels: Iterable[str]) -> set[str]:
    """Return the tables of models (`app.Model`) and apps (`app`)."""
    found = set()
    for label in labels:
        models = (
            [apps.get_model(label)] if "." in label else apps.get_app_config(label).get_models()
        )
        found |= {model._meta.db_table for model in models}  # noqa: SLF001 - Django's public name
    return found
