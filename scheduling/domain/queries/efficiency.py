"""What a job asked for beside what its tasks used, and what would have been enough."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Avg, Count, Max

from scheduling.models import Job, Usage

GPU = "nvidia.com/gpu"
NEWEST_ATTEMPTS = 48
"""How many attempts are looked at: the newest ones speak for the job as it is now."""
LEAST_SAMPLES = 12
"""Fewer samples (about a minute) say nothing about what a task needs."""
ENOUGH_SHARE = 0.7
"""Who used more than this part of what was asked asked well."""
SCARCE_SHARE = 0.9
CPU_STEP = 100
MEMORY_STEP = 64 * 1024 * 1024
MARGINS = {"cpu": 1.2, "memory": 1.25, GPU: 1.3}
"""How much above what was used is suggested."""


@dataclass(frozen=True, slots=True)
class Efficiency:
    """One resource of one role, each number for one task; None means not measured."""

    role: str
    resource: str
    asked: int
    peak: int | None
    mean: int | None
    suggested: int | None
    """What to ask for next time; None where what was asked is right or nothing can be told."""

    @property
    def share(self) -> float | None:
        """Return the part of what was asked that was used: the peak, of GPUs the mean."""
        used = self.mean if self.resource == GPU else self.peak
        return used / self.asked if used is not None and self.asked else None


def efficiency(job: Job) -> list[Efficiency]:
    """Return what each role asked for and used, where something was measured: two queries."""
    newest = job.attempts.order_by("-bound_at").values("id")[:NEWEST_ATTEMPTS]
    rows = (
        Usage.objects.filter(attempt_id__in=newest)
        .values("attempt__task__role_id")
        .annotate(
            samples=Count("id"),
            cpu_peak=Max("cpu_milli"),
            cpu_mean=Avg("cpu_milli"),
            memory_peak=Max("memory_bytes"),
            memory_mean=Avg("memory_bytes"),
            gpu_peak=Max("gpu_percent"),
            gpu_mean=Avg("gpu_percent"),
        )
        .order_by("attempt__task__role_id")
    )
    by_role = {row["attempt__task__role_id"]: row for row in rows}
    found: list[Efficiency] = []
    for role in job.roles.order_by("position"):
        if (row := by_role.get(role.id)) is not None:
            found += _of_role(role.name, role.request, row)
    return found


def _of_role(name: str, request: Mapping[str, int], row: Mapping[str, Any]) -> list[Efficiency]:
    found = []
    for resource, word in (("cpu", "cpu"), ("memory", "memory"), (GPU, "gpu")):
        asked = int(request.get(resource, 0))
        peak, mean = row[f"{word}_peak"], row[f"{word}_mean"]
        if not asked or peak is None:
            continue
        if resource == GPU:  # percent of all that the task holds
            peak, mean = peak * asked / 100, mean * asked / 100
        needed = mean if resource == GPU else peak
        is_known = row["samples"] >= LEAST_SAMPLES
        suggested = suggest(resource, asked, needed) if is_known else None
        found.append(Efficiency(name, resource, asked, round(peak), round(mean), suggested))
    return found


def suggest(resource: str, asked: int, needed: float) -> int | None:
    """Return what would have been enough, in steps that people write; None if nearly that was.

    Memory that came close to what was asked is suggested higher: beyond it a task is ended.
    """
    wanted = needed * MARGINS[resource]
    if resource == GPU:
        enough = math.ceil(wanted / 1000) * 1000 if asked > 1000 else asked  # noqa: PLR2004 -- one GPU
        return enough if 0 < enough < asked else None
    step = MEMORY_STEP if resource == "memory" else CPU_STEP
    enough = max(step, math.ceil(wanted / step) * step)
    if needed < ENOUGH_SHARE * asked and enough < asked:
        return enough
    if resource == "memory" and needed > SCARCE_SHARE * asked and enough > asked:
        return enough
    return None
