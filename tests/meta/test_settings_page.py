"""The page of settings says what the code reads."""

import ast
from pathlib import Path

import pytest

from controlplane import env, settings_page
from controlplane.variables import SECTIONS, Variable
from tests.meta.source_tree import ROOT

READS = settings_page.reads(ROOT)
VARIABLES = {variable.name: variable for section in SECTIONS for variable in section.variables}
CHECKED = {
    name: READS[name].reader
    for name in VARIABLES
    if READS[name].reader in {"integer", "flag", "choice", "origin"}
}


def test_page_is_what_the_code_says() -> None:
    """docs/settings.md is what `manage.py document_settings` would write now."""
    written = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")

    assert written == settings_page.page(ROOT), "run manage.py document_settings"


@pytest.mark.parametrize("name", sorted(CHECKED))
def test_example_is_accepted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A person who copies an example gets no error."""
    monkeypatch.setenv(name, VARIABLES[name].example)
    options = {key: ast.literal_eval(value) for key, value in READS[name].options.items()}
    options.pop("default", None)

    match CHECKED[name]:
        case "integer":
            env.integer(name, 0, **options)
        case "flag":
            env.flag(name, default=False)
        case "choice":
            env.choice(name, VARIABLES[name].example, **options)
        case _:
            env.origin(name)


def test_undescribed_variable_is_named(tmp_path: Path) -> None:
    """Whoever reads a new variable is told to describe it."""
    for package in settings_page.PACKAGES:
        (tmp_path / package).mkdir()
    reading = "\n".join(f"env.text({name!r}, 'x')" for name in [*VARIABLES, "TERRACE_NEW"])
    (tmp_path / "worker" / "new.py").write_text(reading)

    with pytest.raises(settings_page.UndescribedError, match=r"lacks \['TERRACE_NEW'\]"):
        settings_page.page(tmp_path)


def test_type_bounds_and_default_come_from_the_read(tmp_path: Path) -> None:
    """What the page says of a value is what its reader checks."""
    (tmp_path / "worker").mkdir()
    (tmp_path / "worker" / "some.py").write_text(
        "env.integer('A', 5, least=1, most=9)\n"
        "env.flag('B', default=True)\n"
        "env.choice('C', 'x', among=('y', 'x'))\n"
        "env.folder('D', HERE / 'd')\n"
        "env.secret('E')\n"
    )

    found = settings_page.reads(tmp_path)

    assert {name: (read.kind, read.default) for name, read in found.items()} == {
        "A": ("whole number, 1 to 9", "5"),
        "B": ("yes or no", "yes"),
        "C": ("one of `x`, `y`", "x"),
        "D": ("folder", None),
        "E": ("secret", ""),
    }
    assert settings_page._row(Variable("E", "m", "e"), found["E"]).startswith("| `E` ● |")
