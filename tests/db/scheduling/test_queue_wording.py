"""Every refusal of tenants and of queues has a sentence, and the sentence its parameters."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduling.domain import config_wording, wording
from scheduling.spec.problem_texts import PROBLEM_TEXTS

ROOT = Path(__file__).resolve().parents[3]
FILES = [
    *sorted((ROOT / "tenants" / "domain").glob("*.py")),
    *sorted((ROOT / "scheduling" / "domain").glob("queue*.py")),
    ROOT / "scheduling" / "spec" / "queue_tree.py",
]
PLACE_OF_CODE = {"Problem": 1, "Note": 1, "Denied": 0, "Conflict": 0}


def raised(path: Path) -> Iterator[tuple[str, set[str] | None]]:
    """Yield the codes written in a file, with the names of their parameters where those are."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
            continue
        place = PLACE_OF_CODE.get(node.func.id)
        if place is None or len(node.args) <= place:
            continue
        code, *rest = node.args[place:]
        if isinstance(code, ast.Constant) and isinstance(code.value, str):
            given = rest[0] if rest else ast.Dict(keys=[], values=[])
            names = (
                {str(key.value) for key in given.keys if isinstance(key, ast.Constant)}
                if isinstance(given, ast.Dict)
                else None
            )
            yield code.value, names


CODES = sorted(
    {
        (code, frozenset(names) if names is not None else None)
        for path in FILES
        for code, names in raised(path)
    },
    key=str,
)


@pytest.mark.parametrize(("code", "names"), CODES, ids=[code for code, _ in CODES])
def test_code_has_a_sentence(code: str, names: frozenset[str] | None) -> None:
    """The sentence of a code uses no parameter that the refusal does not give."""
    assert wording.has_sentence(code)
    text = str(wording.SENTENCES.get(code) or PROBLEM_TEXTS.get(code) or config_wording.TEXTS[code])
    used = set(re.findall(r"{(\w+)}", text))

    assert names is None or used <= names


def test_the_list_is_not_empty() -> None:
    """The search above finds what it is for."""
    found = {code for code, _ in CODES}

    assert {"last_admin", "queue_has_jobs", "queue_root_protected", "version"} <= found
