"""The page about permissions shows the policy as the code has it."""

from pathlib import Path

from tenants.domain.access import ROLES, Verb

PAGE = Path(__file__).resolve().parents[3] / "docs" / "permissions.md"
BEGIN = "| --- | --- | --- | --- | --- | --- | --- |\n"
END = "\n*own*: "


def table() -> str:
    """Return the rows of the matrix."""
    lines = []
    for verb in Verb:
        cells = [
            "yes" if verb in rights.always else "own" if verb in rights.own else ""
            for rights in ROLES.values()
        ]
        lines.append(f"| `{verb.value}` | {' | '.join(cells)} |\n")
    return "".join(lines)


def test_page_shows_the_policy() -> None:
    """The table of docs/permissions.md is the policy's."""
    text = PAGE.read_text()

    assert text.partition(BEGIN)[2].partition(END)[0] == table()
