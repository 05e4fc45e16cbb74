"""Templates carry no inline style, script or handler, and fragments say what they need."""

import re
from pathlib import Path

from tests.meta.source_tree import ROOT

TEMPLATES = ROOT / "templates"
FORBIDDEN = {
    "inline style": re.compile(r"<style\b|\sstyle\s*=", re.IGNORECASE),
    "inline script": re.compile(
        r"<script\b(?![^>]*\bsrc=)(?![^>]*application/json)", re.IGNORECASE
    ),
    "inline handler": re.compile(r"<[^>]+\son[a-z]+\s*=(?!=)", re.IGNORECASE),
    "javascript link": re.compile(r"href\s*=\s*[\"']?javascript:", re.IGNORECASE),
}


def _problems(text: str) -> list[str]:
    return [name for name, pattern in FORBIDDEN.items() if pattern.search(text)]


def _html() -> list[Path]:
    return sorted(path for path in TEMPLATES.rglob("*.html") if "emails" not in path.parts)


def test_templates_obey_the_content_security_policy() -> None:
    """No template holds anything that the policy would refuse in the browser."""
    found = {
        path.relative_to(ROOT).as_posix(): problems
        for path in _html()
        if (problems := _problems(path.read_text(encoding="utf-8")))
    }

    assert found == {}


def test_each_forbidden_form_is_recognised() -> None:
    """Each of the four forms is found in a template that has it, and a clean one passes."""
    assert _problems('<p style="x">') == ["inline style"]
    assert _problems("<script>x</script>") == ["inline script"]
    assert _problems('<a onclick="x">') == ["inline handler"]
    assert _problems('<a href="javascript:x">') == ["javascript link"]
    assert _problems('<script type="module" src="x.js"></script><p data-style-name="x">') == []


def test_fragments_start_with_their_context() -> None:
    """A fragment's first line is a comment that lists what it is rendered with."""
    found = [
        path.relative_to(ROOT).as_posix()
        for path in _html()
        if path.name.startswith("_")
        and not path.read_text(encoding="utf-8").lstrip().startswith(("{#", "{% comment"))
    ]

    assert found == []
