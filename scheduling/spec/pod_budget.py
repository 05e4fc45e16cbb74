"""The disruption budget that annotations of a job or pod state.

Source: Volcano `pkg/webhooks/admission/pods/validate/admit_pod.go`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from scheduling.spec.problems import Problem

MIN_AVAILABLE = "volcano.sh/jdb-min-available"
MAX_UNAVAILABLE = "volcano.sh/jdb-max-unavailable"
_PATH = "metadata.annotations"
_WHOLE = 100


def check(annotations: Mapping[str, str]) -> list[Problem]:
    """Return what is wrong with the budget: one of two, a number above 0 or 1 % to 99 %."""
    stated = {
        name: annotations[name] for name in (MIN_AVAILABLE, MAX_UNAVAILABLE) if name in annotations
    }
    problems = [one for text in stated.values() for one in _amount(str(text))]
    if len(stated) > 1:
        problems.append(Problem(_PATH, "conflicting_annotations"))
    return problems


def _amount(text: str) -> list[Problem]:
    if re.fullmatch(r"-?\d{1,9}%", text):
        if not 0 < int(text[:-1]) < _WHOLE:
            return [Problem(_PATH, "percentage_out_of_range", {"value": text})]
        return []
    if not re.fullmatch(r"-?\d{1,9}", text):
        return [Problem(_PATH, "not_a_number", {"value": text[:80]})]
    return [] if int(text) > 0 else [Problem(_PATH, "not_positive", {"value": text})]
