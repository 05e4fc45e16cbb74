"""The one way in: YAML text, JSON or a form's fields become a `JobSpec`, or a list of problems."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from scheduling.lifecycle.events import POLICY_ACTIONS, POLICY_EVENTS, LifecycleAction
from scheduling.spec import job_plugins, rules, volcano
from scheduling.spec.defaults import DEFAULT_QUEUE, fill_in
from scheduling.spec.job_spec import JobSpec, RoleSpec
from scheduling.spec.limits import DEFAULT_LIMITS, Limits
from scheduling.spec.plain import known_fields, read_plain
from scheduling.spec.problems import Note, Param, Problem
from scheduling.spec.reader import Findings, suggestion
from scheduling.spec.yaml_loader import UnreadableDocumentError, load_documents

_MOST_REPAIRS = 4


class Format(StrEnum):
    """In what form a job comes in."""

    YAML = "yaml"
    """Text: a Volcano manifest, or the plain representation."""
    JSON = "json"
    """A decoded JSON object: a Volcano manifest, or the plain representation."""
    FORM = "form"
    """The plain representation with text for values; empty means not given."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a document says: a spec if nothing is wrong, and what was assumed on the way."""

    spec: JobSpec | None
    problems: tuple[Problem, ...] = ()
    notes: tuple[Note, ...] = ()
    is_manifest: bool = False


def parse(
    document: str | bytes | dict[str, Any],
    *,
    form: Format,
    default_queue: str = DEFAULT_QUEUE,
    name_suffix: str = "",
    limits: Limits = DEFAULT_LIMITS,
) -> JobSpec | list[Problem]:
    """Return the spec of one job, or everything that is wrong with the document."""
    parsed = read(
        document,
        form=form,
        default_queue=default_queue,
        name_suffix=name_suffix,
        limits=limits,
    )
    return parsed.spec if parsed.spec is not None else list(parsed.problems)


def read(
    document: str | bytes | dict[str, Any],
    *,
    form: Format,
    default_queue: str = DEFAULT_QUEUE,
    name_suffix: str = "",
    limits: Limits = DEFAULT_LIMITS,
) -> Parsed:
    """Like `parse`, with the notes: what was assumed, and what will have no effect."""
    if form is Format.YAML:
        try:
            document = _one_job(document, limits)
        except UnreadableDocumentError as error:
            return Parsed(None, (error.problem,))
    if not isinstance(document, dict):
        problem = Problem("$", "wrong_type", {"expected": "a map", "value": f"{document!r:.80}"})
        return Parsed(None, (problem,))
    if form is Format.JSON and _is_too_large(document, limits):
        return Parsed(None, (Problem("$", "too_many_nodes", {"limit": limits.document_nodes}),))
    findings = Findings()
    is_manifest = is_volcano_job(document)
    if is_manifest:
        plain = volcano.read_job(document, findings, name_suffix=name_suffix)
    else:
        wrong = _other_kind(document)
        if wrong is not None:
            return Parsed(None, (wrong,))
        plain = read_plain(document, findings, is_form=form is Format.FORM)
    return complete(
        plain, findings, is_manifest=is_manifest, default_queue=default_queue, limits=limits
    )


def complete(
    plain: dict[str, Any],
    findings: Findings,
    *,
    is_manifest: bool,
    default_queue: str = DEFAULT_QUEUE,
    limits: Limits = DEFAULT_LIMITS,
) -> Parsed:
    """Fill in defaults, give the types, apply the rules; gather everything that is wrong."""
    filled = fill_in(plain, default_queue=default_queue)
    spec, problems = _typed(filled)
    if spec is not None:
        known = [
            problem.path
            for problem in (*problems, *findings.problems)
            if not _ACTION.search(problem.path)
        ]
        if is_manifest:
            known = [*known, *map(volcano.plain_path, known)]
        problems += [
            one
            for one in rules.check(spec, limits=limits)
            if not any(path.startswith(one.path) for path in known)
        ]
        notes: list[Note] = rules.warn(spec)
    else:
        notes = []
    if is_manifest:
        problems = [
            Problem(volcano.manifest_path(one.path), one.code, one.params) for one in problems
        ]
        notes = [Note(volcano.manifest_path(one.path), one.code, one.params) for one in notes]
    found = _without_repeats([*findings.problems, *problems])
    return Parsed(
        None if found else spec,
        tuple(found),
        (*findings.notes, *notes),
        is_manifest,
    )


def _without_repeats(problems: Iterable[Problem]) -> list[Problem]:
    """One problem per path and code: a wrong amount is met on several ways."""
    seen: dict[tuple[str, str], Problem] = {}
    for problem in problems:
        seen.setdefault((problem.path, problem.code), problem)
    return list(seen.values())


def is_volcano_job(document: dict[str, Any]) -> bool:
    """Whether a document is a Volcano Job (and not the plain representation)."""
    api = document.get("apiVersion")
    return isinstance(api, str) and api.startswith("batch.volcano.sh/") and is_job(document)


def is_job(document: dict[str, Any]) -> bool:
    """Whether a document calls itself a Job."""
    return document.get("kind") == "Job"


def _other_kind(document: dict[str, Any]) -> Problem | None:
    api, kind = document.get("apiVersion"), document.get("kind")
    if api is None or str(api).startswith("terrace/"):
        return None
    return Problem("kind", "not_a_job", {"kind": str(kind)[:80], "api": str(api)[:80]})


def _one_job(document: Any, limits: Limits) -> dict[str, Any]:
    """Return the one job of a YAML text; other documents beside it are a problem."""
    if not isinstance(document, str | bytes):
        raise TypeError("YAML comes as text")
    documents = load_documents(document, limits=limits)
    if not documents:
        raise UnreadableDocumentError(Problem("$", "empty_document"))
    if len(documents) > 1:
        raise UnreadableDocumentError(Problem("$", "not_one_job", {"count": len(documents)}))
    one = documents[0]
    if not isinstance(one, dict):
        params: dict[str, Param] = {"expected": "a map", "value": f"{one!r:.80}"}
        raise UnreadableDocumentError(Problem("$", "wrong_type", params))
    return one


def _is_too_large(document: Any, limits: Limits) -> bool:
    """Count nodes and depth of decoded JSON, stopping at the limits."""
    level, nodes = [document], 0
    for _ in range(limits.document_depth + 1):
        nodes += len(level)
        if nodes > limits.document_nodes:
            return True
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                below += value.values()
            elif isinstance(value, list):
                below += value
        if not below:
            return False
        level = below
    return True


# --- types --------------------------------------------------------------------------------------


def _typed(plain: dict[str, Any]) -> tuple[JobSpec | None, list[Problem]]:
    """Give the types. What is wrong is taken out, so that the rules can judge the rest too."""
    problems: list[Problem] = []
    for _ in range(_MOST_REPAIRS):
        try:
            return _with_regular_options(JobSpec.model_validate(plain)), problems
        except ValidationError as error:
            details = error.errors(include_url=False, include_context=True)
        known = {one.path for one in problems}
        problems += [one for one in map(_type_problem, details) if one.path not in known]
        if not all(_take_out(plain, detail["loc"], detail["type"]) for detail in details):
            break
    return None, problems


def _with_regular_options(spec: JobSpec) -> JobSpec:
    """Write plugin options with their types and without defaults; wrong ones stay for the rules."""
    plugins = {}
    for name, options in spec.plugins.items():
        try:
            typed = job_plugins.options_of(name, options) if name in job_plugins.PLUGINS else None
        except ValidationError:
            typed = None
        plugins[name] = typed.model_dump(exclude_defaults=True) if typed else options
    return spec.model_copy(update={"plugins": plugins})


_ACTION = re.compile(r"policies\[\d+\]\.action$")

_STAND_IN = LifecycleAction.ABORT_JOB
"""Takes the place of a wrong action: no rule about the rest of a policy asks for it."""


def _take_out(plain: Any, place: tuple[int | str, ...], kind: str) -> bool:
    """Remove a wrong value; where one is missing, the list that it belongs to. False: hopeless."""
    if kind == "missing":
        numbers = [n for n, part in enumerate(place) if isinstance(part, int)]
        if not numbers or place[numbers[-1] - 1] == "roles":
            return False
        place = place[: numbers[-1]]
    owner = plain
    for part in place[:-1]:
        try:
            owner = owner[part]
        except (KeyError, IndexError, TypeError):
            return True
    if isinstance(owner, dict):
        if _ACTION.search(_path(place)):
            owner[place[-1]] = _STAND_IN
        else:
            owner.pop(place[-1], None)
        return True
    if isinstance(owner, list) and len(place) > 1:
        return _take_out(plain, place[:-1], kind)
    return False


_OWNERS: dict[int, type[JobSpec | RoleSpec]] = {1: JobSpec, 3: RoleSpec}
"""Whose field it is, by the length of its place: `(field,)` or `("roles", n, field)`."""


def _type_problem(detail: ErrorDetails) -> Problem:
    place, kind = detail["loc"], detail["type"]
    path = _path(place)
    value: dict[str, Param] = {"value": f"{detail.get('input')!s:.80}"}
    if kind == "extra_forbidden":
        field = str(place[-1])
        hint = ""
        if len(place) in _OWNERS:
            hint = suggestion(field, known_fields(_OWNERS[len(place)]))
        return Problem(path, "unknown_field", {"field": field, "hint": hint or "-"})
    if kind == "missing" and path == "roles":
        return Problem(path, "no_task")
    if kind == "missing" or (path == "name" and kind == "string_too_short"):
        return Problem(path, "required")
    if kind in ("enum", "literal_error"):
        return _choice_problem(path, value["value"], detail)
    expected = next((words for start, words in _EXPECTED if kind.startswith(start)), "another type")
    return Problem(path, "wrong_type", {**value, "expected": expected})


def _choice_problem(path: str, value: Param, detail: ErrorDetails) -> Problem:
    if _ACTION.search(path):
        allowed = ", ".join(POLICY_ACTIONS)
        return Problem(path, "invalid_action", {"action": value, "allowed": allowed})
    if re.search(r"policies\[\d+\]\.events", path):
        allowed = ", ".join(POLICY_EVENTS)
        return Problem(path, "invalid_event", {"event": value, "allowed": allowed})
    expected = str((detail.get("ctx") or {}).get("expected", "")).replace("'", "")
    return Problem(path, "invalid_choice", {"value": value, "allowed": expected})


_EXPECTED = (
    ("int", "a whole number"),
    ("float", "a number"),
    ("finite", "a number"),
    ("bool", "true or false"),
    ("string", "a text"),
    ("tuple", "a list"),
    ("list", "a list"),
    ("dict", "a map"),
    ("model", "a map"),
)


def _path(place: Iterable[int | str]) -> str:
    path = ""
    for part in place:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    return path or "$"
