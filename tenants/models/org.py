"""The organisation tree and its closure table."""

import uuid

from django.db import models


class OrgUnitKind(models.TextChoices):
    """What a unit stands for; it changes words on pages, not rules."""

    TENANT = "tenant"
    DEPARTMENT = "department"
    TEAM = "team"
    PERSON = "person"


class OrgUnit(models.Model):
    """A node of the organisation tree; one without a parent is a tenant."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    parent = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.PROTECT, related_name="children"
    )
    tenant = models.ForeignKey("self", on_delete=models.PROTECT, related_name="+")
    """The top-level unit above (itself, for a tenant)."""
    name = models.CharField(max_length=100)
    kind = models.CharField(max_length=16, choices=OrgUnitKind, default=OrgUnitKind.TEAM)
    is_archived = models.BooleanField(default=False)
    created_at = models.DateTimeField()
    version = models.PositiveBigIntegerField(default=1)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["parent", "name"],
                name="org_unit_name_unique",
                nulls_distinct=False,
            ),
        ]

    def __str__(self) -> str:
        return self.name


class OrgClosure(models.Model):
    """One row for each (ancestor, descendant) pair, the pair of a unit with itself included."""

    ancestor = models.ForeignKey(OrgUnit, on_delete=models.CASCADE, related_name="descendant_links")
    descendant = models.ForeignKey(OrgUnit, on_delete=models.CASCADE, related_name="ancestor_links")
    depth = models.PositiveSmallIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["ancestor", "descendant"], name="org_closure_pair_unique"
            ),
        ]
        indexes = [models.Index(fields=["descendant", "depth"], name="org_closure_up")]

    def __str__(self) -> str:
        return f"{self.ancestor_id} > {self.descendant_id} ({self.depth})"
