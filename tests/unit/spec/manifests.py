"""Small manifests and plain jobs to change one thing in."""

from __future__ import annotations

import copy
from typing import Any

PLAIN: dict[str, Any] = {
    "name": "train",
    "roles": [
        {"name": "ps", "replicas": 1, "command": ["run"], "cpu_milli": 500},
        {"name": "worker", "replicas": 3, "command": ["run"], "cpu_milli": 500},
    ],
}

VOLCANO: dict[str, Any] = {
    "apiVersion": "batch.volcano.sh/v1alpha1",
    "kind": "Job",
    "metadata": {"name": "train"},
    "spec": {
        "tasks": [
            {
                "name": name,
                "replicas": replicas,
                "template": {"spec": {"containers": [{"name": "main", "image": "busybox"}]}},
            }
            for name, replicas in (("ps", 1), ("worker", 3))
        ]
    },
}


def changed(document: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return a copy of a document with one value set; numbers in the path are list positions."""
    result = copy.deepcopy(document)
    owner: Any = result
    *parents, last = path.split(".")
    for part in parents:
        owner = owner[int(part)] if part.isdecimal() else owner.setdefault(part, {})
    if last.isdecimal():
        owner[int(last)] = value
    else:
        owner[last] = value
    return result
