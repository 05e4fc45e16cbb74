"""What is wrong, or worth knowing, about a document: a place, a code and parameters, no words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Param = str | int | float


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that keeps a document from being accepted.

    `path` is written in the words of the document: `roles[0].min_available` in the plain form,
    `spec.tasks[0].minAvailable` in a Volcano manifest, `$` for the document as a whole.
    `problem_texts.TEXTS[code]` is the English sentence with a named placeholder for each parameter.
    """

    path: str
    code: str
    params: Mapping[str, Param] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Note:
    """Something that was assumed or is not acted upon; the document is accepted all the same."""

    path: str
    code: str
    params: Mapping[str, Param] = field(default_factory=dict)
