"""Every role, verb and kind has words."""

from scheduling.domain import access_wording
from scheduling.domain.queries.people import AccountState
from tenants.domain.access import Verb
from tenants.models import GrantRole, OrgUnitKind


def test_every_role_verb_and_state_has_words() -> None:
    """Nothing of the policy is shown by its bare name."""
    assert set(access_wording.ROLE_NAMES) == set(access_wording.ROLE_HELP) == set(GrantRole)
    assert set(access_wording.VERB_NAMES) == set(Verb)
    assert set(access_wording.KIND_NAMES) == set(OrgUnitKind)
    assert set(access_wording.ACCOUNT_STATES) == set(AccountState)
