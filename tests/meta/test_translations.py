"""Every string that is shown has words in Chinese, or is counted until the next round of them."""

from __future__ import annotations

import ast
import gettext
import re
from collections.abc import Iterator
from pathlib import Path

from django.utils.translation.template import templatize

from tests.meta.source_tree import ROOT, parsed, python_files

CATALOGUE = ROOT / "controlplane" / "locale" / "zh_Hans" / "LC_MESSAGES"
SOURCES = ("controlplane", "scheduling", "tenants", "worker")
SINGLE = {"_", "gettext", "gettext_lazy", "gettext_noop"}
PLURAL = {"ngettext", "ngettext_lazy"}
CONTEXT = {"pgettext", "pgettext_lazy"}
CALL = re.compile(r"\b(n?p?gettext)\(")
MOST_WITHOUT_WORDS = 60
"""What may be added between two rounds of translation; a release has none."""
Key = tuple[str, str]
"""(context, the string in English)."""


def _text(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _key(call: ast.Call) -> Key | None:
    """Return what a call of one of gettext's functions looks up, if it is written out there."""
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    texts = [_text(one) for one in call.args]
    if name in SINGLE | PLURAL | {"gettext", "ngettext"} and texts and texts[0]:
        return ("", texts[0])
    if name in CONTEXT | {"npgettext"} and len(texts) > 1 and texts[0] and texts[1]:
        return (texts[0], texts[1])
    return None


def _calls_of_python() -> Iterator[Key]:
    for path in python_files(*SOURCES):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Call) and (key := _key(node)) is not None:
                yield key


def _calls_of_template(text: str) -> Iterator[Key]:
    """Yield what a template looks up: Django writes it as calls, amid what is no Python."""
    written = templatize(text)
    for match in CALL.finditer(written):
        end = match.end()
        while (end := written.find(")", end) + 1) > 0:
            try:
                expression = ast.parse(written[match.start() : end], mode="eval").body
            except SyntaxError:
                continue
            if isinstance(expression, ast.Call) and (key := _key(expression)) is not None:
                yield key
            break


def _shown() -> set[Key]:
    """Return every string that pages, reasons and mails look up."""
    templates = [*(ROOT / "templates").rglob("*.html"), *(ROOT / "templates").rglob("*.txt")]
    found = set(_calls_of_python())
    for path in templates:
        found.update(_calls_of_template(path.read_text(encoding="utf-8")))
    return found


def _words(path: Path) -> dict[Key, str]:
    """Return the compiled catalogue; the plural of Chinese has one form."""
    with path.open("rb") as compiled:
        catalogue: dict[str | tuple[str, int], str] = gettext.GNUTranslations(compiled)._catalog  # type: ignore[attr-defined]  # its only way to all entries
    found = {}
    for entry, words in catalogue.items():
        text = entry[0] if isinstance(entry, tuple) else entry
        context, _, message = text.rpartition("\x04")
        found[context, message] = words
    return found


def _placeholders(text: str) -> set[str]:
    return set(re.findall(r"%\(\w+\)|\{\w+\}", text))


def test_strings_have_words() -> None:
    """What has no words in Chinese is no more than what a round of work adds."""
    shown = _shown()

    missing = sorted(shown - _words(CATALOGUE / "django.mo").keys())

    assert len(shown) > 1500
    assert len(missing) <= MOST_WITHOUT_WORDS, missing


def test_catalogue_has_words_for_each_entry() -> None:
    """No entry of the catalogue is empty or a guess that nobody has looked at."""
    text = (CATALOGUE / "django.po").read_text(encoding="utf-8")
    _header, *entries = text.split("\n\n")

    assert [one for one in entries if re.search(r'msgstr(\[0\])? ""\n*$', one)] == []
    assert "fuzzy" not in text


def test_compiled_catalogue_is_of_the_written_one() -> None:
    """As many strings are compiled as written, so neither was committed without the other."""
    text = (CATALOGUE / "django.po").read_text(encoding="utf-8")

    written = len(re.findall(r"^msgid ", text, re.MULTILINE))

    assert len(_words(CATALOGUE / "django.mo")) == written


def test_words_name_what_the_string_names() -> None:
    """A placeholder that words use is one of the string's, or of its plural's."""
    text = (CATALOGUE / "django.po").read_text(encoding="utf-8")
    _header, *entries = text.split("\n\n")

    wrong = []
    for entry in entries:
        english, _, words = entry.partition("\nmsgstr")
        if not _placeholders(words) <= _placeholders(english):
            wrong.append(entry)

    assert wrong == []


def test_calls_in_templates_are_found() -> None:
    """Each way to write a string in a template is found."""
    text = (
        '{% load i18n %}{% translate "One (1)" as a %}{% blocktranslate count n=n %}two'
        "{% plural %}twos{% endblocktranslate %}{% blocktranslate with x=y %}it's {{ x }}"
        '{% endblocktranslate %}{% translate "four" context "c" %}'
    )

    assert set(_calls_of_template(text)) == {
        ("", "One (1)"),
        ("", "two"),
        ("", "it's %(x)s"),
        ("c", "four"),
    }
