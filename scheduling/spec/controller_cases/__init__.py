"""Answers the controller scenarios: each case is put to the rules that the product itself uses.

`answer_controllers_case(family, case)` returns the `then` of a case, as scheduling.scenario prints
it. Only translation stands in this package: from the words of the cases to ours and back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from scheduling.spec.controller_cases import (
    admission,
    flows,
    gangs,
    job_ops,
    lifecycle,
    mutation,
    plugins,
    queues,
    schedules,
)
from scheduling.spec.controller_cases.words import UnsupportedCaseError

__all__ = ["UnsupportedCaseError", "answer_controllers_case"]

Case = Mapping[str, Any]

FAMILIES: Mapping[str, Callable[[Case], dict[str, Any]]] = {
    "policy": lifecycle.answer_policy,
    "state": lifecycle.answer_state,
    "gc": lifecycle.answer_clean_up,
    "queue-state": lifecycle.answer_queue_state,
    "job-ops": job_ops.answer,
    "admission-job": admission.answer_job,
    "admission-other": admission.answer_other,
    "admission-queue": queues.answer,
    "mutate": mutation.answer,
    "plugin": plugins.answer,
    "podgroup": gangs.answer,
    "jobflow": flows.answer,
    "cronjob": schedules.answer,
}


def answer_controllers_case(family: str, case: Case) -> dict[str, Any]:
    """Return what becomes of a case.

    Raises:
        UnsupportedCaseError: Terrace has nothing that this case could be put to.
    """
    if family not in FAMILIES:
        raise UnsupportedCaseError(f"there is no family {family!r}")
    return FAMILIES[family](case)
