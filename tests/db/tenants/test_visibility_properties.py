"""Random trees, grants and moves: scope and policy against an oracle that walks parents.

Names are chosen to break comparisons by prefix, by LIKE and by normalisation: `a`, `ab`, `a%`,
`a_`, `a/`, and two spellings of one accented letter that look alike.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

import pytest
from django.db import transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scheduling.models import Cluster, Queue
from tenants.domain import access, org
from tenants.domain.access import ROLES, SYSTEM, Actor, Verb, load_actor
from tenants.domain.errors import Invalid
from tenants.models import ApiToken, GrantRole, OrgClosure, OrgUnit
from tests.people import NOW, make_grant, make_queue, make_unit, make_user

pytestmark = pytest.mark.django_db

NAMES = ("a", "ab", "a%", "a_", "a/", "caf\u00e9", "cafe\u0301", "A", "a b", "á", "%", "_", "/")
UNIT_ROLES = [role for role in GrantRole if role != GrantRole.PLATFORM_ADMIN]
Plan = tuple[list[tuple[int, str]], list[tuple[int, int]], list[tuple[GrantRole, int]]]
VERBS = [Verb.JOB_READ, Verb.JOB_CREATE, Verb.QUEUE_EDIT, Verb.AUDIT_READ, Verb.JOB_LOGS]


@dataclass(slots=True)
class World:
    """Rows and, beside them, what the oracle knows: parents and grants."""

    units: list[OrgUnit] = field(default_factory=list)
    parents: dict[UUID, UUID | None] = field(default_factory=dict)
    grants: list[tuple[GrantRole, UUID | None]] = field(default_factory=list)

    def path(self, unit_id: UUID) -> list[UUID]:
        """Return a unit and all above it."""
        path = []
        above: UUID | None = unit_id
        while above is not None:
            path.append(above)
            above = self.parents[above]
        return path

    def may(self, verb: Verb, unit_id: UUID, *, is_own: bool, cut: UUID | None = None) -> bool:
        """Decide by walking: a grant on the path gives it, and the token's unit is on the path."""
        path = self.path(unit_id)
        if cut is not None and cut not in path:
            return False
        return any(
            verb in ROLES[role].always or (is_own and verb in ROLES[role].own)
            for role, place in self.grants
            if place is None or place in path
        )


@st.composite
def plans(
    draw: st.DrawFn,
) -> Plan:
    """Draw units (parent, name), moves (unit, parent) and grants (role, unit); -1: none."""
    count = draw(st.integers(2, 9))
    units = [
        (draw(st.integers(-1, number - 1)), draw(st.sampled_from(NAMES))) for number in range(count)
    ]
    index = st.integers(0, count - 1)
    moves = draw(st.lists(st.tuples(index, index), max_size=5))
    role: st.SearchStrategy[GrantRole] = st.sampled_from(UNIT_ROLES)
    grants: list[tuple[GrantRole, int]] = draw(st.lists(st.tuples(role, index), max_size=3))
    grants += draw(st.lists(st.tuples(st.just(GrantRole.AUDITOR), st.just(-1)), max_size=1))
    return units, moves, grants


def build(
    units: list[tuple[int, str]],
    moves: list[tuple[int, int]],
    grants: list[tuple[GrantRole, int]],
) -> tuple[World, Actor]:
    """Write the world and move in it as the domain does; refused moves change nothing."""
    world = World()
    taken: set[tuple[UUID | None, str]] = set()
    for number, (parent, name) in enumerate(units):
        above = world.units[parent] if parent >= 0 else None
        key = (above.id if above else None, name)
        unit = make_unit(name if key not in taken else f"{name}{number}", above)
        taken.add((key[0], unit.name))
        world.units.append(unit)
        world.parents[unit.id] = above.id if above else None
    for moved, target in moves:
        unit, parent_unit = world.units[moved], world.units[target]
        unit.refresh_from_db()
        try:
            with transaction.atomic():
                org.move_unit(
                    actor=SYSTEM,
                    unit_id=unit.id,
                    parent_id=parent_unit.id,
                    expected_version=unit.version,
                    now=NOW,
                )
        except Invalid:
            continue
        world.parents[unit.id] = parent_unit.id
    user = make_user("someone")
    for role, place in dict.fromkeys(grants):
        unit_or_none = world.units[place] if place >= 0 else None
        make_grant(user, role, unit_or_none)
        world.grants.append((role, unit_or_none.id if unit_or_none else None))
    return world, load_actor(user)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(plans(), st.booleans())
def test_policy_agrees_with_walking(
    plan: Plan,
    is_own: bool,
) -> None:
    """For every unit and verb, `may`, `allowed` and `visible_to` say what walking up says."""
    with transaction.atomic():
        world, actor = build(*plan)
        ids = [unit.id for unit in world.units]
        owner = actor.user_id if is_own else UUID(int=7)
        cluster = Cluster.objects.create(name="c", created_at=NOW)
        root = make_queue(cluster, "root")
        for number, unit in enumerate(world.units):
            make_queue(cluster, f"q{number}", root, unit)

        links = set(OrgClosure.objects.values_list("ancestor_id", "descendant_id", "depth"))
        assert links == {
            (above, unit, depth) for unit in ids for depth, above in enumerate(world.path(unit))
        }
        for verb in VERBS:
            expected = {unit for unit in ids if world.may(verb, unit, is_own=is_own)}
            if verb not in access.OWN_ANYWHERE:
                assert access.allowed(actor, verb, ids, owner_id=owner) == expected
                assert {u for u in ids if access.may(actor, verb, u, owner_id=owner)} == expected
            always = {unit for unit in ids if world.may(verb, unit, is_own=False)}
            seen = Queue.objects.visible_to(access.reads(actor, verb)).filter(unit__isnull=False)
            assert set(seen.values_list("unit_id", flat=True)) == always
            assert {
                unit for unit, verbs in access.verbs_on(actor, ids).items() if verb in verbs
            } == always
        transaction.set_rollback(True)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(plans(), st.integers(0, 8), st.sets(st.sampled_from(VERBS), max_size=3))
def test_tokens_agree_with_walking(
    plan: Plan,
    place: int,
    verbs: set[Verb],
) -> None:
    """A token gives what both its owner's grants and its own verbs and subtree give, no more."""
    with transaction.atomic():
        world, owner = build(*plan)
        ids = [unit.id for unit in world.units]
        cut = world.units[place % len(ids)]
        user = make_user("other")
        for role, unit in world.grants:
            make_grant(user, role, next((u for u in world.units if u.id == unit), None))
        token = ApiToken(
            user=user, name="t", verbs=[verb.value for verb in verbs], unit=cut, expires_at=NOW
        )
        actor = load_actor(user, token)

        for verb in VERBS:
            is_kept = not verbs or verb in verbs
            expected = {
                unit for unit in ids if is_kept and world.may(verb, unit, is_own=False, cut=cut.id)
            }
            assert access.allowed(actor, verb, ids) == expected
            assert expected <= access.allowed(owner, verb, ids)
        assert not actor.sees_everything
        transaction.set_rollback(True)
