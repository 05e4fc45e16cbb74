"""Make `docs/settings.md` from the places in the code that read the environment.

The reads are found in the syntax trees: name, type, bounds and literal defaults come from them,
so that the page cannot say anything else than the code does.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from controlplane.variables import SECTIONS, Variable

PACKAGES = ("controlplane", "scheduling", "tenants", "worker")
KINDS = {
    "text": "text",
    "flag": "yes or no",
    "integer": "whole number",
    "choice": "word",
    "words": "words, with commas",
    "folder": "folder",
    "origin": "scheme://host[:port]",
    "secret": "secret",
}
INTRODUCTION = """# Settings

Made by `manage.py document_settings` from the code that reads them; do not edit.

Terrace reads its settings once, at the start, from the environment. Nonsense stops the process with
the name, the value and an example. An empty variable counts as unset. Every secret (●) may be given
as a file instead: `NAME_FILE=/run/secrets/name`.
"""


@dataclass(frozen=True, slots=True)
class Read:
    """One place that reads a variable."""

    name: str
    reader: str
    default: str | None
    """As literal text; empty: none; None: computed."""
    options: dict[str, ast.expr] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """What the value has to look like, in words."""
        words = KINDS[self.reader]
        if "least" in self.options:
            least, most = (ast.literal_eval(self.options[key]) for key in ("least", "most"))
            return f"{words}, {least} to {most}"
        if "among" in self.options:
            among = sorted(ast.literal_eval(self.options["among"]))
            return "one of " + ", ".join(f"`{one}`" for one in among)
        return words


class UndescribedError(Exception):
    """A variable is read and not described, or described and not read."""


def reads(root: Path) -> dict[str, Read]:
    """Return the variables that the code reads, each at the first place that says most of it."""
    found: dict[str, Read] = {}
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            for read in _reads_of(ast.parse(path.read_text(encoding="utf-8"), str(path))):
                known = found.get(read.name)
                if known is None or (not known.default and read.default):
                    found[read.name] = read
    return found


def page(root: Path) -> str:
    """Return the page.

    Raises:
        UndescribedError: `controlplane/variables.py` and the code do not agree.
    """
    found = reads(root)
    described = [variable.name for section in SECTIONS for variable in section.variables]
    missing = sorted(found.keys() - set(described))
    stale = sorted(set(described) - found.keys())
    if missing or stale:
        message = (
            f"controlplane/variables.py lacks {missing or 'nothing'} and describes {stale or 'no'} "
            "variables that nobody reads: mend the table, then run manage.py document_settings."
        )
        raise UndescribedError(message)
    parts = [INTRODUCTION]
    for section in SECTIONS:
        rows = [_row(variable, found[variable.name]) for variable in section.variables]
        head = "| variable | value | default | meaning | example |\n|---|---|---|---|---|"
        parts.append("\n".join([f"## {section.title}\n", head, *rows]) + "\n")
    return "\n".join(parts)


def _row(variable: Variable, read: Read) -> str:
    mark = " ●" if read.reader == "secret" else ""
    default = variable.default or (f"`{read.default}`" if read.default else "none")
    if read.default is None and not variable.default:
        message = f"{variable.name}: the code computes its default; say it in variables.py."
        raise UndescribedError(message)
    example = variable.example if " " in variable.example else f"`{variable.example}`"
    cells = (f"`{variable.name}`{mark}", read.kind, default, variable.meaning, example)
    return "| " + " | ".join(cells) + " |"


def _reads_of(tree: ast.Module) -> Iterator[Read]:
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id == "env"
            and node.func.attr in KINDS
            and node.args
        ):
            name = ast.literal_eval(node.args[0])
            options = {word.arg: word.value for word in node.keywords if word.arg}
            default = node.args[1] if len(node.args) > 1 else options.get("default")
            yield Read(name, node.func.attr, _literal(default), options)


def _literal(default: ast.expr | None) -> str | None:
    if default is None:
        return ""
    try:
        value = ast.literal_eval(default)
    except ValueError:
        return None
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
