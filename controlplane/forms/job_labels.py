"""What the fields of the job form are called, on the form and wherever else one is named."""

from __future__ import annotations

import re

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from controlplane.forms.jobs import JobForm

JOB = {
    "name": gettext_lazy("Name"),
    "queue": gettext_lazy("Queue"),
    "kind": gettext_lazy("Kind"),
    "code_url": gettext_lazy("Or a git address"),
    "code_revision": gettext_lazy("Revision"),
    "code_sub_path": gettext_lazy("Folder in it"),
    "min_available": gettext_lazy("Tasks that start together"),
    "max_retry": gettext_lazy("Runs at most"),
    "min_success": gettext_lazy("Succeeds with"),
    "priority_class": gettext_lazy("Priority"),
    "sla_waiting": gettext_lazy("Start within"),
    "time_limit": gettext_lazy("Time limit"),
    "plugins": gettext_lazy("Plugins"),
}
ROLE = {
    "name": gettext_lazy("Role's name"),
    "replicas": gettext_lazy("Replicas"),
    "min_available": gettext_lazy("At least together"),
    "cpu": gettext_lazy("CPU"),
    "memory": gettext_lazy("Memory"),
    "gpu": gettext_lazy("GPUs"),
    "command": gettext_lazy("Command"),
    "image": gettext_lazy("Image"),
    "runtime": gettext_lazy("Or a runtime"),
    "shell": gettext_lazy("Command is run by"),
    "env": gettext_lazy("Environment"),
    "secrets": gettext_lazy("Secrets"),
    "args": gettext_lazy("Arguments"),
    "working_dir": gettext_lazy("Working folder"),
    "depends_on": gettext_lazy("Starts after roles"),
    "max_retry": gettext_lazy("Restarts in place at most"),
    "topology_policy": gettext_lazy("NUMA"),
    "node_selector": gettext_lazy("Only nodes with labels"),
}
POLICY = {
    "events": gettext_lazy("When"),
    "exit_code": gettext_lazy("or exit code"),
    "action": gettext_lazy("do"),
    "timeout": gettext_lazy("after"),
}
_FIELD = re.compile(r"(?:roles-(\d+)-)?(?:policies-(\d+)-)?(\w+)")


def label(prefix: str, name: str) -> str:
    """Return what stands above a field; `prefix` is the part's that it belongs to."""
    labels = POLICY if "policies-" in prefix else ROLE if prefix else JOB
    return str(labels.get(name, name))


def place(form: JobForm, field: str) -> str:
    """Name a field to somebody who looks at the whole form: with its role and policy."""
    match = _FIELD.fullmatch(field)
    if match is None:
        return field
    role, policy, name = match.groups()
    words = []
    if role is not None:
        given = form.roles[int(role)].values.get("name", "").strip()
        words.append(_("Role %(name)s") % {"name": given or int(role) + 1})
    if policy is not None:
        words.append(_("Policy %(n)d") % {"n": int(policy) + 1})
    words.append(label(field.removesuffix(name), name))
    return " · ".join(words)
