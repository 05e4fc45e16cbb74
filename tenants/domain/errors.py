"""What a domain function raises when it cannot do what was asked; words are made elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Param = str | int | float


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with an input: a place, a code and parameters.

    It has the shape of `scheduling.spec.problems.Problem`, which a layer above cannot share with
    this one; `AnyProblem` is what both are.
    """

    path: str
    code: str
    params: Mapping[str, Param] = field(default_factory=dict)


class DomainError(Exception):
    """The root of all refusals by a domain function; entry points map its children to replies."""


class Denied(DomainError):  # noqa: N818 - an outcome, by its name in the API
    """The actor sees the thing but may not do this with it (403).

    `params` names the verb, the unit and the roles that would do; `ask` the people who have one.
    """

    def __init__(
        self, code: str, params: Mapping[str, Param] | None = None, ask: Sequence[str] = ()
    ) -> None:
        """Keep the code of the rule that refused."""
        super().__init__(code, dict(params or {}))
        self.code = code
        self.params: Mapping[str, Param] = dict(params or {})
        self.ask = tuple(ask)


class NotFound(DomainError):  # noqa: N818 - likewise
    """The thing is not there, or the actor may not know whether it is (404)."""

    def __init__(self, what: str) -> None:
        """Keep what was looked for, in words of the glossary."""
        super().__init__(what)
        self.what = what


class Gone(DomainError):  # noqa: N818 - likewise
    """There is a record of the thing, and what it names is lost for good (410)."""

    def __init__(self, code: str, params: Mapping[str, Param] | None = None) -> None:
        """Keep what is lost."""
        super().__init__(code, dict(params or {}))
        self.code = code
        self.params: Mapping[str, Param] = dict(params or {})


class Conflict(DomainError):  # noqa: N818 - likewise
    """Somebody else was faster, or the thing's state does not allow this now (409, 412).

    `current` is what is stored now, or a three-way difference where the function says so.
    """

    def __init__(
        self,
        code: str,
        params: Mapping[str, Param] | None = None,
        current: object = None,
    ) -> None:
        """Keep what stands in the way."""
        super().__init__(code, dict(params or {}))
        self.code = code
        self.params: Mapping[str, Param] = dict(params or {})
        self.current = current


class Invalid(DomainError):  # noqa: N818 - likewise
    """The input breaks rules; every broken one is listed with its place (422)."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        """Keep the problems in the order in which a reader meets them."""
        super().__init__(*(f"{problem.path}: {problem.code}" for problem in problems))
        self.problems = tuple(problems)
