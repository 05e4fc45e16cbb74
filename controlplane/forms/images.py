"""The table of images and runtimes as a form: rows of text become edits, problems stand at rows.

The form carries the version that the person saw. Rows are added, moved and removed by buttons that
post the form and get it back changed; nothing is in force before it is saved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from scheduling.domain.images import MOST_RULES, RuleEdit
from scheduling.domain.wording import sentence
from scheduling.models import ImageRule
from tenants.domain.errors import Problem

FIELDS = {"pattern": "pattern", "runtime": "runtime", "unit_id": "unit"}
"""Field of an edit -> field of the form."""
BLANK_ROWS = 3


@dataclass(slots=True)
class RuleFields:
    """One row of the form: what stands in its fields and what is wrong there."""

    pattern: str = ""
    runtime: str = ""
    unit: str = ""
    """The unit's path, as `unit_paths` writes it; empty: for all."""
    errors: dict[str, list[str]] = field(default_factory=dict)

    @property
    def is_blank(self) -> bool:
        """Whether nothing stands in it."""
        return not (self.pattern or self.runtime or self.unit)


@dataclass(slots=True)
class RulesForm:
    """The rows in the order in which they decide, and the problems that belong to none."""

    version: int
    rows: list[RuleFields] = field(default_factory=list)
    reason: str = ""
    general: list[str] = field(default_factory=list)

    @property
    def is_valid(self) -> bool:
        """Whether nothing is wrong that is known so far."""
        return not self.general and not any(row.errors for row in self.rows)

    def edits(self, paths: Mapping[UUID, str]) -> list[RuleEdit]:
        """Return the rows as edits, and note the units that are not there; blank rows vanish."""
        self.rows = [row for row in self.rows if not row.is_blank]
        unit_ids = {path: unit_id for unit_id, path in paths.items()}
        for row in self.rows:
            if row.unit and row.unit not in unit_ids:
                row.errors.setdefault("unit", []).append(sentence("unit_missing", {}))
        return [RuleEdit(row.pattern, row.runtime, unit_ids.get(row.unit)) for row in self.rows]

    def take(self, problems: Sequence[Problem]) -> None:
        """Put problems at their fields; row numbers are those of `edits`."""
        for problem in problems:
            text = sentence(problem.code, problem.params)
            number, _sep, name = problem.path.removeprefix("rules[").partition("].")
            if name in FIELDS and number.isdecimal():
                self.rows[int(number)].errors.setdefault(FIELDS[name], []).append(text)
            else:
                self.general.append(text)

    def rearrange(self, action: str) -> None:
        """Do what one of the buttons says: `more`, `remove:<row>` or `up:<row>`, from row 0."""
        verb, _sep, number = action.partition(":")
        row = int(number) if number.isdecimal() else len(self.rows)
        if verb == "remove" and row < len(self.rows):
            del self.rows[row]
        elif verb == "up" and 0 < row < len(self.rows):
            self.rows.insert(row - 1, self.rows.pop(row))
        if verb == "more" or not self.rows:
            self.add_blank_rows()

    def add_blank_rows(self) -> None:
        """Make room for more rules."""
        self.rows += [RuleFields() for _ in range(BLANK_ROWS)]


def form_of_rules(rules: Sequence[ImageRule], paths: Mapping[UUID, str], version: int) -> RulesForm:
    """Return the form as the table is now, with room for more."""
    form = RulesForm(version)
    form.rows = [
        RuleFields(rule.pattern, rule.runtime, paths[rule.unit_id] if rule.unit_id else "")
        for rule in rules
    ]
    form.add_blank_rows()
    return form


def form_of_post(post: Any) -> RulesForm:
    """Read the form from a POST (a QueryDict)."""
    version = post.get("version", "")
    columns = [post.getlist(name) for name in FIELDS.values()]
    form = RulesForm(
        int(version) if version.isdecimal() else 0, reason=post.get("reason", "")[:500]
    )
    is_whole = version.isdecimal() and len({len(column) for column in columns}) == 1
    if not is_whole or len(columns[0]) > 2 * MOST_RULES:
        form.general.append(sentence("form_damaged", {}))
        return form
    form.rows = [
        RuleFields(pattern.strip(), runtime.strip(), unit.strip())
        for pattern, runtime, unit in zip(*columns, strict=True)
    ]
    return form
