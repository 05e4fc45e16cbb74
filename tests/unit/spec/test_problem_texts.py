"""Every code has a sentence, and every sentence a code."""

from __future__ import annotations

import ast
from pathlib import Path

from scheduling import spec
from scheduling.spec.problem_texts import NOTE_TEXTS, PROBLEM_TEXTS

SOURCE = Path(next(iter(spec.__path__)))


def codes_used() -> tuple[set[str], set[str]]:
    """Return the codes of problems and notes that occur as literals in the package."""
    problems: set[str] = set()
    notes: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            position = {"Problem": 1, "refuse": 1, "Note": 1, "note": 1, "_refused": 0}.get(name)
            if position is None or len(node.args) <= position:
                continue
            value = node.args[position]
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                (notes if name in ("Note", "note") else problems).add(value.value)
    return problems, notes


def test_every_code_has_a_sentence() -> None:
    """No page ever shows a bare code."""
    problems, notes = codes_used()

    assert problems - set(PROBLEM_TEXTS) == set()
    assert notes - set(NOTE_TEXTS) == set()


def test_a_code_means_one_thing() -> None:
    """No code is both a problem's and a note's."""
    assert set(PROBLEM_TEXTS) & set(NOTE_TEXTS) == set()


def test_sentences_say_something() -> None:
    """Each ends as a sentence does."""
    assert [
        code for code, text in {**PROBLEM_TEXTS, **NOTE_TEXTS}.items() if text[-1] not in ".?"
    ] == []
