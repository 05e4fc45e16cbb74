"""Forms of the administration: what was typed, what is wrong with it, and what may be chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from scheduling.domain.wording import sentence
from tenants.domain.errors import Conflict, Denied, Invalid, Param

Choices = Sequence[tuple[str, str]]
"""Value -> label."""
Refusal = Invalid | Conflict | Denied
LONGEST = 1000
"""Of one field, as far as it is shown again."""

FIELDS_OF_CONFLICTS = {
    "username_taken": "username",
    "grant_exists": "role",
    "unit_archived": "target",
}


@dataclass(slots=True)
class TextForm:
    """Named texts, their problems by name, and problems that belong to none."""

    values: dict[str, str]
    errors: dict[str, list[str]] = field(default_factory=dict)
    general: list[str] = field(default_factory=list)
    is_conflict: bool = False
    """Whether somebody else changed the thing meanwhile."""

    @property
    def is_valid(self) -> bool:
        """Whether nothing is wrong so far."""
        return not self.errors and not self.general

    @property
    def status(self) -> int:
        """The HTTP status that goes with the form."""
        if self.is_conflict:
            return 409
        return 200 if self.is_valid else 422

    def text(self, name: str) -> str:
        """Return a field without spaces around it."""
        return self.values.get(name, "").strip()

    def number(self, name: str) -> int:
        """Return a whole number that the page itself put into the form; 0 if it was damaged."""
        text = self.text(name)
        return int(text) if text.isdecimal() and len(text) < 18 else 0  # noqa: PLR2004 - fits a column

    def unit(self, name: str, *, is_required: bool = True) -> UUID | None:
        """Return the id that a choice names, and say at the field if it names none."""
        text = self.text(name)
        try:
            return UUID(text)
        except ValueError:
            if is_required or text:
                self.say(name, "required")
            return None

    def say(self, name: str, code: str, params: Mapping[str, Param] | None = None) -> None:
        """Put a problem at a field."""
        self.errors.setdefault(name, []).append(sentence(code, params or {}))

    def take(self, error: Refusal, names: Mapping[str, str] | None = None) -> None:
        """Put a refusal where it belongs; `names` maps paths of problems to fields."""
        if isinstance(error, Invalid):
            for problem in error.problems:
                name = (names or {}).get(problem.path, problem.path)
                if name in self.values:
                    self.say(name, problem.code, problem.params)
                else:
                    self.general.append(sentence(problem.code, problem.params))
            return
        name = FIELDS_OF_CONFLICTS.get(error.code, "")
        self.is_conflict = isinstance(error, Conflict) and error.code == "version"
        if name in self.values:
            self.say(name, error.code, error.params)
        else:
            self.general.append(sentence(error.code, error.params))


def form_of(given: Mapping[str, str], *names: str) -> TextForm:
    """Read the named fields of a query or a POST."""
    return TextForm({name: given.get(name, "")[:LONGEST] for name in names})
