"""Placing files: nothing leaves the root, whatever path, link or archive says."""

from __future__ import annotations

import io
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest

from worker.agent import placing
from worker.agent.placing import Owner, PlacingError

LIMIT = 1_000


def place(folder: Path, path: str, content: bytes = b"x", *, limit: int = LIMIT) -> None:
    with placing.open_root(folder) as root:
        placing.place_stream(
            root, path, io.BytesIO(content), mode=0o640, owner=Owner(), limit=limit
        )


def unpack(folder: Path, content: bytes, *, path: str = ".", limit: int = LIMIT) -> None:
    with placing.open_root(folder) as root:
        placing.unpack(root, path, io.BytesIO(content), owner=Owner(), limit=limit)


def tar_of(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as tar:
        for member, content in members:
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return target.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


def test_file_with_folders(tmp_path: Path) -> None:
    """A file gets the folders above it, its content and its mode."""
    place(tmp_path, "a/b/train.py", b"print()")

    found = tmp_path / "a" / "b" / "train.py"
    assert found.read_bytes() == b"print()"
    assert stat.S_IMODE(found.stat().st_mode) == 0o640


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../x", "a/../../x", "", ".", "a\0b", "x/" * 600 + "x"]
)
def test_path_that_is_none(tmp_path: Path, path: str) -> None:
    """Absolute, climbing, empty and endless paths are refused, naming the file."""
    inside = tmp_path / "root"
    inside.mkdir()

    with pytest.raises(PlacingError, match="file"):
        place(inside, path)

    assert [entry.name for entry in tmp_path.iterdir()] == ["root"]


def test_link_on_the_way(tmp_path: Path) -> None:
    """A link among the folders is not followed, even inside the root."""
    outside = tmp_path / "outside"
    outside.mkdir()
    inside = tmp_path / "root"
    inside.mkdir()
    (inside / "way").symlink_to(outside)

    with pytest.raises(PlacingError, match="'way' is a link or no folder"):
        place(inside, "way/x")

    assert list(outside.iterdir()) == []


def test_link_at_the_end(tmp_path: Path) -> None:
    """A link of the file's name is replaced, what it points to stays."""
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    inside = tmp_path / "root"
    inside.mkdir()
    (inside / "x").symlink_to(secret)

    place(inside, "x", b"new")

    assert (secret.read_bytes(), (inside / "x").read_bytes()) == (b"secret", b"new")
    assert not (inside / "x").is_symlink()


def test_file_over_the_limit(tmp_path: Path) -> None:
    """Bytes are counted as they come."""
    with pytest.raises(PlacingError, match="more than the 3 bytes"):
        place(tmp_path, "x", b"1234", limit=3)


def test_tar_with_link_then_file_through_it(tmp_path: Path) -> None:
    """A link inside the archive cannot carry the next member out."""
    (tmp_path / "outside").mkdir()
    inside = tmp_path / "root"
    inside.mkdir()
    content = tar_of(
        (member("sub", tarfile.DIRTYPE), b""),
        (member("way", tarfile.SYMTYPE, "sub"), b""),
        (member("way/x"), b"x"),
    )

    with pytest.raises(PlacingError, match="'way' is a link or no folder"):
        unpack(inside, content)

    assert list((inside / "sub").iterdir()) == []


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside", "a/../../outside"])
def test_tar_link_that_leads_out(tmp_path: Path, target: str) -> None:
    """A link out of the folder is refused, not left out."""
    with pytest.raises(PlacingError, match="points out of the task's folder"):
        unpack(tmp_path, tar_of((member("way", tarfile.SYMTYPE, target), b"")))

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", [tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_tar_member_of_other_kind(tmp_path: Path, kind: bytes) -> None:
    """Hard links, pipes and devices are refused with the way out."""
    with pytest.raises(PlacingError, match="neither file, folder nor symbolic link"):
        unpack(tmp_path, tar_of((member("x", kind, "y"), b"")))


def test_tar_keeps_links_and_modes(tmp_path: Path) -> None:
    """Harmless links and the executable bit survive."""
    program = member("bin/run")
    program.mode = 0o755

    unpack(tmp_path, tar_of((program, b"#!"), (member("now", tarfile.SYMTYPE, "bin/run"), b"")))

    assert (tmp_path / "now").read_bytes() == b"#!"
    assert stat.S_IMODE((tmp_path / "bin" / "run").stat().st_mode) == 0o755


def test_zip_bomb(tmp_path: Path) -> None:
    """What comes out counts, not what went in; the claims of the archive count for nothing."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", b"0" * 600)
        archive.writestr("b", b"0" * 600)

    with pytest.raises(PlacingError, match="more than the 400 bytes that are left"):
        unpack(tmp_path, target.getvalue(), limit=LIMIT)


def test_zip_climbing_member(tmp_path: Path) -> None:
    """A zip's member cannot climb either."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("../evil", b"x")
    inside = tmp_path / "root"
    inside.mkdir()

    with pytest.raises(PlacingError, match="below the task's folder"):
        unpack(inside, target.getvalue())

    assert not (tmp_path / "evil").exists()


def test_no_archive(tmp_path: Path) -> None:
    """Something that is neither tar nor zip is named as such."""
    with pytest.raises(PlacingError, match="not a readable tar or zip"):
        unpack(tmp_path, b"hello")


def test_too_many_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of members is limited."""
    monkeypatch.setattr(placing, "MEMBERS_LIMIT", 2)
    members = [(member(str(number)), b"") for number in range(3)]

    with pytest.raises(PlacingError, match="more than 2 members"):
        unpack(tmp_path, tar_of(*members))
