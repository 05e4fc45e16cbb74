"""The documentation names every action, plugin and callback."""

from __future__ import annotations

from pathlib import Path

from scheduling.engine import registry
from scheduling.engine.callbacks import CALLBACKS
from scheduling.engine.config import DEFAULT_CONFIG

ROOT = Path(registry.__file__).resolve().parents[2]


def test_every_action_and_plugin_has_a_row() -> None:
    """A row of a table starts with its name; those of the default carry a star."""
    rows = [
        line.split("|")[1]
        for line in (ROOT / "docs" / "engine.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("| `")
    ]
    named = {part.strip("` *") for cell in rows for part in cell.split()} - {""}
    starred = {cell.split("`")[1] for cell in rows if cell.rstrip().endswith("*")}

    assert set(registry.PLUGINS) | set(registry.ACTIONS) <= named
    assert starred == {p.name for tier in DEFAULT_CONFIG.tiers for p in tier}


def test_every_callback_is_explained() -> None:
    """The package's README says what each is asked."""
    text = (ROOT / "scheduling" / "engine" / "README.md").read_text(encoding="utf-8")

    assert {name for name in CALLBACKS if f"`{name}`" not in text} == set()
