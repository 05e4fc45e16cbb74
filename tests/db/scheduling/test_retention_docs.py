"""How long things are kept is what docs/operations.md tells operators."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest

from scheduling.domain import retention, samples
from tenants.domain import idempotency

DOCS = Path(__file__).resolve().parents[3] / "docs" / "operations.md"
MODULES = {"retention": retention, "samples": samples, "idempotency": idempotency}


def rows() -> list[tuple[str, str]]:
    """Return (constant, how long) of the table, a pair for each constant in order."""
    text = DOCS.read_text(encoding="utf-8")
    found = []
    for kept, names in re.findall(r"^\| [^|]+ \| ([^|]+) \| ([^|]*) \|$", text, re.MULTILINE):
        constants = re.findall(r"`(\w+\.[A-Z_]+)`", names)
        spans = re.findall(r"\d+ (?:hours|days)", kept)
        found += list(zip(constants, spans, strict=True)) if constants else []
    return found


@pytest.mark.parametrize(("constant", "told"), rows())
def test_operators_are_told_the_constant(constant: str, told: str) -> None:
    """The number in the table is the one in the code."""
    module, _, name = constant.partition(".")
    number, unit = told.split()

    assert getattr(MODULES[module], name) == timedelta(**{unit: int(number)})


def test_table_names_what_is_thinned() -> None:
    """Every constant that says how long something is kept stands in the table."""
    named = {constant for constant, _ in rows()}
    here = {
        f"{module}.{name}"
        for module, code in MODULES.items()
        for name in vars(code)
        if name.startswith(("KEPT", "FINE"))
    }

    assert here == named
