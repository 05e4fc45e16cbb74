"""The one queryset through which everything of a tenant is read."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol, Self, TypeVar
from uuid import UUID

from django.db import models

from tenants.models.org import OrgClosure

MOST_IDS = 2_000
"""So many ids are written into a statement; the planner then knows which rows they have."""

M_co = TypeVar("M_co", bound=models.Model, covariant=True)


class Scope(Protocol):
    """What the queryset needs to know of an actor (`tenants.domain.access.Actor` is one)."""

    @property
    def sees_everything(self) -> bool:
        """Whether a grant on the whole installation lets the actor read."""

    @property
    def readable_units(self) -> Collection[UUID]:
        """The units of the grants that let the actor read; closure adds what lies below."""


class ScopedQuerySet(models.QuerySet[M_co]):
    """A queryset of rows that belong to an org unit.

    `unit_path` is the lookup from the model to its unit's id. Subtrees are compared by the closure
    table, never by a prefix of a path.
    """

    unit_path = "unit_id"

    def visible_to(self, scope: Scope) -> Self:
        """Keep only the rows whose unit lies below a unit that `scope` may read."""
        if scope.sees_everything:
            return self
        below = OrgClosure.objects.filter(ancestor_id__in=scope.readable_units)
        return self.filter(**{f"{self.unit_path}__in": below.values("descendant_id")})

    def visible_in_order(self, scope: Scope) -> Self:
        """Keep the same rows, for a list that reads the first few in the order of an index.

        Which units these are is asked first. Otherwise the planner takes a large subtree for a
        small one, reads all of its rows and sorts them.
        """
        if scope.sees_everything:
            return self
        below = OrgClosure.objects.filter(ancestor_id__in=scope.readable_units)
        units = known_first(below.values_list("descendant_id", flat=True))
        return self.filter(**{f"{self.unit_path}__in": units})


def known_first(ids: models.QuerySet[Any, UUID]) -> Collection[UUID] | models.QuerySet[Any, UUID]:
    """Return the ids of a subtree for an `__in`, or the question itself if there are too many."""
    found = list(ids[: MOST_IDS + 1])
    return ids if len(found) > MOST_IDS else found
