"""Where the project's own source lies, and how the meta tests read it."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("controlplane", "scheduling", "tenants", "worker")


def python_files(*folders: str) -> Iterator[Path]:
    """Yield the Python files below `folders` (default: the four packages), migrations left out."""
    for folder in folders or PACKAGES:
        yield from (
            path for path in sorted((ROOT / folder).rglob("*.py")) if "migrations" not in path.parts
        )


@cache
def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of one file."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def where(path: Path, node: ast.AST | int) -> str:
    """Say `file:line`, as an editor understands it."""
    line = node if isinstance(node, int) else getattr(node, "lineno", 0)
    return f"{path.relative_to(ROOT)}:{line}"
