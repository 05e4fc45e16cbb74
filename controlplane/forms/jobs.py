"""The job form: POST fields to a plain document and back, and problems to their fields.

The form is another way to write the plain representation of a spec; `scheduling.spec.parse` judges
it as it judges YAML. What a document says beyond the fields travels in hidden `extra` fields, so
that nothing is lost between form and YAML, and is listed on the page.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from scheduling.domain.wording import sentence
from scheduling.lifecycle.events import POLICY_ACTIONS, POLICY_EVENTS
from scheduling.spec.job_spec import JobKind, JobSpec
from scheduling.spec.plain import secret_line
from scheduling.spec.quantities import write_bytes, write_duration, write_thousandths

# A plain document is open-ended JSON, checked by `scheduling.spec.parse`.
Document = dict[str, Any]

SHELLS = ("/bin/sh", "/bin/bash", "sh", "bash")
EXACT = "none"
"""Instead of a shell: the command is split into words and run as it is."""

JOB_FIELDS = (
    "name",
    "queue",
    "kind",
    "priority_class",
    "min_available",
    "min_success",
    "max_retry",
    "sla_waiting",
    "time_limit",
)
ROLE_FIELDS = (
    "name",
    "replicas",
    "min_available",
    "image",
    "runtime",
    "shell",
    "command",
    "args",
    "working_dir",
    "env",
    "secrets",
    "cpu",
    "memory",
    "gpu",
    "max_retry",
    "depends_on",
    "node_selector",
    "topology_policy",
)
SPECIAL = frozenset({"shell", "command", "env", "secrets"})
"""Fields of a role that stand for something of another form."""
POLICY_FIELDS = ("events", "exit_code", "action", "timeout")
CODE_FIELDS = ("url", "revision", "sub_path")
FIELD_OF = {
    "cpu_milli": "cpu",
    "memory_bytes": "memory",
    "gpu_milli": "gpu",
    "sla_waiting_seconds": "sla_waiting",
    "time_limit_seconds": "time_limit",
    "timeout_seconds": "timeout",
    "event": "events",
}
"""Names of the spec -> names of the fields, where the form has the shorthand."""
MOST_ROLES = 100
MOST_POLICIES = 16


@dataclass(slots=True)
class Part:
    """A role or policy of the form: its prefix, what stands in its fields, what only YAML says."""

    prefix: str
    values: dict[str, str] = field(default_factory=dict)
    policies: list[Part] = field(default_factory=list)
    extra: Document = field(default_factory=dict)

    @property
    def extra_json(self) -> str:
        """Return the hidden field's text."""
        return json.dumps(self.extra) if self.extra else ""

    @property
    def is_open(self) -> bool:
        """Whether the part of rarer fields has something in it."""
        rare = ("args", "working_dir", "depends_on", "node_selector", "runtime", "topology_policy")
        return any(self.values.get(name) for name in rare) or any(
            policy.values for policy in self.policies
        )


@dataclass(slots=True)
class JobForm:
    """What stands in the form, and what is wrong with it."""

    values: dict[str, str] = field(default_factory=dict)
    roles: list[Part] = field(default_factory=list)
    policies: list[Part] = field(default_factory=list)
    plugins: list[str] = field(default_factory=list)
    extra: Document = field(default_factory=dict)
    is_manifest: bool = False
    code_file_id: str = ""
    errors: dict[str, list[str]] = field(default_factory=dict)
    general: list[str] = field(default_factory=list)
    """Problems without a field of their own."""

    @property
    def extra_json(self) -> str:
        """Return the hidden field's text."""
        return json.dumps(self.extra) if self.extra else ""

    @property
    def only_in_yaml(self) -> list[tuple[str, str]]:
        """Return (path, value) of what the form has no fields for."""
        found = list(_leaves("", self.extra))
        for number, role in enumerate(self.roles):
            found += _leaves(f"roles[{number}]", role.extra)
        return found

    def document(self) -> Document:
        """Return the plain document that the form says, with what only YAML says in its place."""
        document: Document = {**self.extra, **_given(self.values, JOB_FIELDS)}
        document["roles"] = [_role_document(role) for role in self.roles]
        document["policies"] = _policy_documents(self.policies)
        given = self.extra.get("plugins") or {}
        document["plugins"] = {name: given.get(name, True) for name in self.plugins}
        if code := _given({k: self.values.get(f"code_{k}", "") for k in CODE_FIELDS}, CODE_FIELDS):
            document["code"] = {"source": "git", **code}
        return document

    def take(self, problems: Iterable[Any]) -> None:
        """Put each problem at its field; those without one stand above the form."""
        for problem in problems:
            text = sentence(problem.code, problem.params)
            name = self.field_of(problem.path)
            if name is None:
                shown = problem.path if problem.path not in {"", "$"} else ""
                self.general.append(f"{shown}: {text}" if shown else text)
            else:
                self.errors.setdefault(name, []).append(text)

    def field_of(self, path: str) -> str | None:
        """Return the name of the field that a path of the spec is shown at."""
        prefix, rest = "", path
        if match := re.match(r"roles\[(\d+)\]\.?", rest):
            if int(match[1]) >= len(self.roles):
                return None
            prefix, rest = f"roles-{match[1]}-", rest[match.end() :]
        if match := re.match(r"policies\[(\d+)\]\.?", rest):
            name = re.split(r"[.\[]", rest[match.end() :])[0] or "events"
            return f"{prefix}policies-{match[1]}-{FIELD_OF.get(name, name)}"
        if rest.startswith("code"):
            return "code_url"
        head = re.split(r"[.\[]", rest)[0] or ("name" if prefix else "")
        head = FIELD_OF.get(head, head)
        known = ROLE_FIELDS if prefix else (*JOB_FIELDS, "plugins")
        return prefix + head if head in known else None


def empty_form(*, queue: str = "") -> JobForm:
    """Return the form as a newcomer meets it: one role with small amounts."""
    values = {"queue": queue, "kind": "training"}
    role = Part(
        "roles-0-",
        {"name": "worker", "replicas": "1", "cpu": "1", "memory": "1Gi", "shell": SHELLS[0]},
        [Part("roles-0-policies-0-")],
    )
    return JobForm(values, [role], [Part("policies-0-")], ["env", "svc"])


def form_from_post(post: Any) -> JobForm:
    """Read the form from a POST (a QueryDict)."""
    form = JobForm(
        values={name: post.get(name, "") for name in JOB_FIELDS}
        | {f"code_{name}": post.get(f"code_{name}", "") for name in CODE_FIELDS},
        plugins=post.getlist("plugins"),
        extra=_loaded(post.get("extra", "")),
        is_manifest=post.get("is_manifest") == "yes",
        code_file_id=post.get("code_file_id", ""),
    )
    form.policies = _parts(post, "policies-", POLICY_FIELDS, MOST_POLICIES)
    form.roles = _parts(post, "roles-", ROLE_FIELDS, MOST_ROLES)
    for role in form.roles:
        role.policies = _parts(post, f"{role.prefix}policies-", POLICY_FIELDS, MOST_POLICIES)
        role.extra = _loaded(post.get(f"{role.prefix}extra", ""))
    return _with_blank_rows(form)


def form_from_spec(spec: JobSpec, *, is_manifest: bool = False) -> JobForm:
    """Fill the form from a spec; what it has no field for goes into `extra`."""
    plain = spec.model_dump(mode="json", exclude_defaults=True)
    roles = plain.pop("roles")
    form = JobForm(is_manifest=is_manifest)
    plain |= {"kind": spec.kind.value, "min_available": spec.min_available, "queue": spec.queue}
    _shorten_durations(plain)
    form.values = {name: str(plain.pop(name)) for name in JOB_FIELDS if name in plain}
    form.policies, rest = _policy_parts(plain.pop("policies", []), "policies-")
    plugins = plain.get("plugins") or {}
    form.plugins = list(plugins)
    if not any(plugins.values()):
        plain.pop("plugins", None)
    code = plain.get("code") or {}
    if code.get("source") == "git":
        form.values |= {f"code_{name}": code.get(name, "") for name in CODE_FIELDS}
        del plain["code"]
    form.extra = {**plain, **({"policies": rest} if rest else {})}
    form.roles = [_role_part(number, role) for number, role in enumerate(roles)]
    return _with_blank_rows(form)


def _with_blank_rows(form: JobForm) -> JobForm:
    """Offer one empty policy after the given ones, for those who have no scripts."""
    for policies, prefix in (
        (form.policies, "policies-"),
        *((role.policies, f"{role.prefix}policies-") for role in form.roles),
    ):
        if not policies or any(policies[-1].values.values()):
            policies.append(Part(f"{prefix}{len(policies)}-"))
    if not form.roles:
        form.roles.append(Part("roles-0-", {"shell": SHELLS[0]}, [Part("roles-0-policies-0-")]))
    return form


def _parts(post: Any, prefix: str, names: Iterable[str], most: int) -> list[Part]:
    """Read numbered parts as far as they go without a gap."""
    parts = []
    for number in range(most):
        own = f"{prefix}{number}-"
        if not any(f"{own}{name}" in post for name in names):
            break
        parts.append(Part(own, {name: post.get(f"{own}{name}", "") for name in names}))
    return parts


def _loaded(text: str) -> Document:
    """Read a hidden field; one that somebody damaged says nothing."""
    try:
        found = json.loads(text) if text else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _given(values: Mapping[str, str], names: Iterable[str]) -> Document:
    return {name: values[name] for name in names if values.get(name, "").strip()}


def _role_document(role: Part) -> Document:
    simple = [name for name in ROLE_FIELDS if name not in SPECIAL]
    document: Document = {**role.extra, **_given(role.values, simple)}
    if "node_selector" in document and isinstance(document["node_selector"], str):
        document["node_selector"] = _pairs(document["node_selector"])
    if environment := {**role.extra.get("env", {}), **_pairs(role.values.get("env", ""))}:
        # As a list, since an empty value in a map counts as a field that was left empty.
        document["env"] = [{"name": name, "value": value} for name, value in environment.items()]
    if lines := [line for line in role.values.get("secrets", "").splitlines() if line.strip()]:
        document["secrets"] = [*role.extra.get("secrets", ()), *lines]
    if (text := role.values.get("command", "").replace("\r\n", "\n")).strip():
        document["command"] = _command(text, role.values.get("shell", ""))
    document["policies"] = [*role.extra.get("policies", ()), *_policy_documents(role.policies)]
    return document


def _command(text: str, shell: str) -> list[str] | str:
    if shell == EXACT:
        try:
            return shlex.split(text)
        except ValueError:
            return text
    return [shell if shell in SHELLS else SHELLS[0], "-c", text]


def _pairs(lines: str) -> dict[str, str]:
    """Read NAME=value lines; an empty value stays one."""
    found = (line.partition("=") for line in lines.splitlines() if line.strip())
    return {name.strip(): value for name, _sep, value in found}


def _policy_documents(policies: Iterable[Part]) -> list[Document]:
    return [given for policy in policies if (given := _given(policy.values, POLICY_FIELDS))]


def _role_part(number: int, role: Document) -> Part:
    part = Part(f"roles-{number}-")
    part.policies, rest = _policy_parts(role.pop("policies", []), f"roles-{number}-policies-")
    values = part.values
    values["replicas"] = str(role.pop("replicas", 1))
    for name, (short, write) in {
        "cpu_milli": ("cpu", write_thousandths),
        "memory_bytes": ("memory", write_bytes),
        "gpu_milli": ("gpu", write_thousandths),
    }.items():
        if amount := role.pop(name, 0):
            values[short] = write(amount)
    values["shell"], values["command"] = _command_fields(role.pop("command", None))
    if role.get("args"):
        values["args"] = shlex.join(role.pop("args"))
    if (
        isinstance(role.get("depends_on"), dict)
        and role["depends_on"].get("iteration", "all") == "all"
    ):
        values["depends_on"] = ", ".join(role.pop("depends_on").get("names", ()))
    environment = role.pop("env", {})
    single = {name: value for name, value in environment.items() if "\n" not in value}
    values["env"] = "\n".join(f"{name}={value}" for name, value in single.items())
    if several := {name: value for name, value in environment.items() if name not in single}:
        role["env"] = several
    written = [(use, secret_line(use)) for use in role.pop("secrets", ())]
    values["secrets"] = "\n".join(line for _use, line in written if line)
    if unwritten := [use for use, line in written if not line]:
        role["secrets"] = unwritten
    if "node_selector" in role:
        pairs = role.pop("node_selector").items()
        values["node_selector"] = "\n".join(f"{name}={value}" for name, value in pairs)
    values |= {
        name: str(role.pop(name)) for name in ROLE_FIELDS if name in role and name not in SPECIAL
    }
    part.extra = {**role, **({"policies": rest} if rest else {})}
    return part


def _command_fields(command: list[str] | None) -> tuple[str, str]:
    """Return what to show as shell and as command."""
    if not command:
        return SHELLS[0], ""
    match command:
        case [shell, "-c", text] if shell in SHELLS:
            return shell, text
    return EXACT, shlex.join(command)


def _policy_parts(policies: list[Document], prefix: str) -> tuple[list[Part], list[Document]]:
    """Return policies as rows of the form."""
    parts = []
    for number, policy in enumerate(policies):
        values = {
            "action": str(policy.get("action", "")),
            "events": ", ".join(policy.get("events", ())),
        }
        if policy.get("exit_code") is not None:
            values["exit_code"] = str(policy["exit_code"])
        if policy.get("timeout_seconds") is not None:
            values["timeout"] = write_duration(policy["timeout_seconds"])
        parts.append(Part(f"{prefix}{number}-", values))
    return parts, []


def _shorten_durations(plain: Document) -> None:
    for name in ("sla_waiting", "time_limit"):
        seconds = plain.pop(f"{name}_seconds", None)
        if seconds is not None:
            plain[name] = write_duration(seconds)


def _leaves(path: str, value: Any) -> Iterable[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _leaves(f"{path}.{name}" if path else str(name), inner)
    elif isinstance(value, list) and value and any(isinstance(one, dict | list) for one in value):
        for number, inner in enumerate(value):
            yield from _leaves(f"{path}[{number}]", inner)
    elif path and value not in ({}, []):
        yield path, value if isinstance(value, str) else json.dumps(value)


CHOICES = {
    "kind": [kind.value for kind in JobKind],
    "priority_class": ["", "low", "normal", "high"],
    "shell": [*SHELLS, EXACT],
    "action": ["", *(action.value for action in POLICY_ACTIONS)],
    "topology_policy": ["", "none", "best-effort", "restricted", "single-numa-node"],
}
"""Field -> what its menu offers."""
EVENTS = [event.value for event in POLICY_EVENTS]
