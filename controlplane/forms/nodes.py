"""Labels and taints of a node as two fields of text, one to a line."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from scheduling.domain.node_marks import Taint
from scheduling.domain.snapshot_values import HOSTNAME
from scheduling.domain.wording import sentence
from scheduling.models import Node
from tenants.domain.errors import Conflict, Invalid


@dataclass(slots=True)
class MarksForm:
    """What stands in the fields, the version that was seen, and what is wrong."""

    labels: str
    taints: str
    version: int
    label_errors: list[str] = field(default_factory=list)
    taint_errors: list[str] = field(default_factory=list)
    conflict: str = ""

    @classmethod
    def of_node(cls, node: Node) -> MarksForm:
        """Return the form as the node is now."""
        labels = [f"{key}={value}" for key, value in sorted(node.labels.items()) if key != HOSTNAME]
        taints = [
            f"{one['key']}={one.get('value', '')}:{one['effect']}".replace("=:", ":")
            for one in node.taints
        ]
        return cls("\n".join(labels), "\n".join(taints), node.version)

    @classmethod
    def of_post(cls, post: Any) -> MarksForm:
        """Read the form from a POST (a QueryDict)."""
        version = post.get("version", "")
        number = int(version) if version.isdecimal() and len(version) < 18 else -1  # noqa: PLR2004 -- fits the column
        return cls(post.get("labels", ""), post.get("taints", ""), number)

    def read_labels(self) -> dict[str, str]:
        """Read `key=value`, or a key alone."""
        pairs = (line.partition("=") for line in _lines(self.labels))
        return {key.strip(): value.strip() for key, _, value in pairs}

    def read_taints(self) -> list[Taint]:
        """Read `key=value:Effect`, or `key:Effect`."""
        taints = []
        for line in _lines(self.taints):
            rest, _, effect = line.rpartition(":")
            key, _, value = rest.partition("=")
            taints.append(Taint(key.strip(), value.strip(), effect.strip()))
        return taints

    def take(self, error: Conflict | Invalid) -> None:
        """Keep what was wrong, in words; after a conflict what was typed may be sent again."""
        if isinstance(error, Conflict):
            self.conflict = sentence(error.code, error.params)
            self.version = getattr(error.current, "version", self.version)
            return
        for one in error.problems:
            errors = self.label_errors if one.path.startswith("labels") else self.taint_errors
            errors.append(sentence(one.code, one.params))


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]
