"""What is not ours is locked, and nothing secret lies in the tree."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.meta.source_tree import ROOT

LOCKS = ("run", "agent", "dev")
PINNED = re.compile(r"^[A-Za-z0-9][\w.\-\[\],]*==[^\s;\\]+")
SECRETS = {
    "a private key": re.compile(rb"-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----\s*[A-Za-z0-9+/=]{40}"),
    "a key of a cloud": re.compile(rb"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    "a token of a forge": re.compile(rb"\b(?:gh[pousr]_[A-Za-z0-9]{36}|glpat-[\w-]{20})"),
    "a token of ours": re.compile(rb"\btr[a-z]_[A-Za-z0-9_-]{40,}"),
    "a web token": re.compile(rb"\beyJ[\w-]{20,}\.eyJ[\w-]{20,}\.[\w-]{20,}"),
    "a password in an address": re.compile(
        rb"\b(?:postgres(?:ql)?|rediss?)://\w+:[A-Za-z0-9]{20,}@"
    ),
}


def kept() -> Iterator[Path]:
    """Yield the files of a checkout; what `.gitignore` names by folder is left out."""
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").split()
    skipped = {".git", *(one.strip("/") for one in ignored if one.endswith("/"))}
    for folder, below, names in os.walk(ROOT):
        below[:] = [one for one in below if one not in skipped]
        yield from (Path(folder) / name for name in names)


def found(content: bytes) -> list[str]:
    """Return what kinds of secrets a file seems to hold."""
    return [what for what, pattern in SECRETS.items() if pattern.search(content)]


def test_no_secret_lies_in_the_tree() -> None:
    """No file holds a key or token that opens something."""
    holding = {
        str(path.relative_to(ROOT)): what
        for path in kept()
        if path.is_file() and (what := found(path.read_bytes()))
    }

    assert holding == {}


@pytest.mark.parametrize(
    "text",
    [
        "-----BEGIN " + "PRIVATE KEY-----\n" + "A" * 64,
        "AKIA" + "ABCDEFGHIJKLMNOP",
        "ghp_" + "a" * 36,
        "trc_" + "a" * 43,
        "postgresql://terrace:" + "a" * 32 + "@db/terrace",
    ],
)
def test_secrets_are_recognised(text: str) -> None:
    """Each kind is found where it is."""
    assert len(found(text.encode())) == 1


@pytest.mark.parametrize("name", LOCKS)
def test_every_package_is_pinned_with_its_hashes(name: str) -> None:
    """Each requirement names one version and at least one hash of what may be installed."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")
    joined = text.replace("\\\n", " ").splitlines()
    lines = [one for one in joined if one.strip() and not one.lstrip().startswith(("#", "--"))]

    assert lines
    assert [one for one in lines if not PINNED.match(one) or "--hash=sha256:" not in one] == []


def test_every_script_package_is_locked_with_its_hash() -> None:
    """The lock file of npm holds the integrity of each package."""
    packages = json.loads((ROOT / "package-lock.json").read_text(encoding="utf-8"))["packages"]

    assert [name for name, one in packages.items() if name and "integrity" not in one] == []


@pytest.mark.parametrize(
    ("says", "status", "ends", "told"),
    [
        ("No known vulnerabilities found", 0, 0, "nothing is known"),
        ("Found 1 known vulnerability in 1 package: left-pad 1.0", 1, 1, "left-pad 1.0"),
        ("ConnectionError: Max retries exceeded", 1, 75, "Run make audit again where there is"),
        ("left-pad could not be audited: left-pad (1.0)", 0, 75, "Run make audit again where"),
    ],
)
def test_audit_tells_known_from_not_asked(
    tmp_path: Path, says: str, status: int, ends: int, told: str
) -> None:
    """Without a network the audit is neither clean nor a finding, and says what to do."""
    for name in ("pip-audit", "npm"):
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\necho "{says}"\nexit {status}\n', encoding="utf-8")
        program.chmod(0o755)
    environment = {
        "PATH": f"{tmp_path}{os.pathsep}{os.defpath}",
        "AUDIT_TOOL": str(tmp_path / "pip-audit"),
    }

    done = subprocess.run(
        ["sh", "requirements/audit.sh"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        check=False,
        text=True,
    )

    assert done.returncode == ends, done.stdout
    assert told in done.stdout
