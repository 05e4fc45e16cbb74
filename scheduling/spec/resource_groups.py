"""Resource groups: pods of a namespace, or with a mark, get nodes and a scheduler of their own.

Source: Volcano `pkg/webhooks/admission/pods/mutate/mutate_pod.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

GROUP_ANNOTATION = "volcano.sh/resource-group"


@dataclass(frozen=True, slots=True)
class ResourceGroup:
    """One group. `matches_by` is `namespace` or `annotation`; empty: the annotation names it."""

    name: str
    scheduler: str
    node_labels: Mapping[str, str]
    matches_by: str = ""
    values: tuple[str, ...] = ()
    tolerations: Sequence[Mapping[str, Any]] = ()
    affinity: Mapping[str, Any] = field(default_factory=dict)

    def matches(self, namespace: str, annotations: Mapping[str, str]) -> bool:
        """Whether a pod belongs to the group."""
        if self.matches_by == "namespace":
            return namespace in self.values
        if self.matches_by == "annotation":
            stated = {f"{name}: {value}" for name, value in annotations.items()}
            return not stated.isdisjoint(self.values)
        return annotations.get(GROUP_ANNOTATION) == self.name


def find_group(
    groups: Iterable[ResourceGroup], *, namespace: str, annotations: Mapping[str, str]
) -> ResourceGroup | None:
    """Return the first group that a pod belongs to, None if there is none."""
    return next((one for one in groups if one.matches(namespace, annotations)), None)
