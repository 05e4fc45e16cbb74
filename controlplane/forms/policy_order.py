"""In which order the policies of a job are looked at, for the panel beside the form."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from scheduling.lifecycle.policies import effective_order
from scheduling.lifecycle.values import Policy
from scheduling.spec.job_spec import JobSpec, PolicySpec


@dataclass(frozen=True, slots=True)
class OrderedPolicy:
    """One policy as it applies to a role: whose it is, what it waits for, what it does."""

    policy: Policy
    is_roles_own: bool

    @property
    def events(self) -> str:
        """Return the events' names in one line."""
        return ", ".join(event.value for event in self.policy.events)


def ordered_policies(spec: JobSpec) -> list[tuple[str, list[OrderedPolicy]]]:
    """Return for each role what answers it, first to last; nothing where no policy is given."""
    of_job = [OrderedPolicy(one, is_roles_own=False) for one in _in_order(spec.policies)]
    found = []
    for role in spec.roles:
        own = [OrderedPolicy(one, is_roles_own=True) for one in _in_order(role.policies)]
        if own or of_job:
            found.append((role.name, own + of_job))
    return found


def _in_order(policies: Iterable[PolicySpec]) -> list[Policy]:
    return effective_order(
        Policy(one.action, one.events, one.exit_code, one.timeout_seconds) for one in policies
    )
