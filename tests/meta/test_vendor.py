"""Vendored libraries are what they were when they were taken in."""

import hashlib

from tests.meta.source_tree import ROOT

VENDOR = ROOT / "static" / "vendor"


def test_vendored_files_have_their_hashes() -> None:
    """Each file of static/vendor is listed in SHA256SUMS with the hash that it has."""
    lines = (VENDOR / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    listed = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}

    found = {
        path.relative_to(VENDOR).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in VENDOR.rglob("*")
        if path.is_file() and path.name != "SHA256SUMS"
    }

    assert found == listed


def test_each_vendored_library_has_its_licence() -> None:
    """Each folder has a LICENSE beside its files."""
    folders = sorted(path.name for path in VENDOR.iterdir() if path.is_dir())

    assert folders == [name for name in folders if (VENDOR / name / "LICENSE").exists()]
