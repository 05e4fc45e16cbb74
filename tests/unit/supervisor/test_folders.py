"""Folders of the embedded servers: closed to others, and short enough for a socket."""

import stat
import tempfile
from pathlib import Path

import pytest

from controlplane.supervisor import folders, services
from controlplane.supervisor.errors import StartError


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_private_folder_is_closed(tmp_path: Path) -> None:
    """A folder that was open before is closed."""
    folder = tmp_path / "a"
    folder.mkdir(mode=0o755)

    assert folders.make_private(folder, None) == folder
    assert mode(folder) == 0o700


def test_link_in_place_of_a_folder_is_refused(tmp_path: Path) -> None:
    """Nobody lures root into another folder by a link."""
    (tmp_path / "target").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "target")

    with pytest.raises(StartError, match="is not a folder"):
        folders.make_private(tmp_path / "link", None)


def test_sockets_lie_in_the_data_folder_if_they_can(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A short plain path needs no second place."""
    monkeypatch.setattr(folders, "LONGEST_SOCKET_FOLDER", len(str(tmp_path)) + 10)

    assert folders.socket_folder(tmp_path, None) == tmp_path / "run"


@pytest.mark.parametrize("name", ["with space", "comma,comma", 'quote"quote', "x" * 120])
def test_sockets_lie_elsewhere_if_the_path_does_not_suit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    """The short folder is private and differs by data folder."""
    monkeypatch.setattr(tempfile, "tempdir", "/tmp")
    first = folders.socket_folder(tmp_path / name, None)
    second = folders.socket_folder(tmp_path / f"{name}2", None)

    assert first.parent == Path("/tmp")
    assert first != second
    assert len(str(first)) <= folders.LONGEST_SOCKET_FOLDER
    assert mode(first) == 0o700
    first.rmdir()
    second.rmdir()


def test_services_are_private_and_read_back(tmp_path: Path) -> None:
    """What the supervisor wrote is what the others read."""
    written = services.Services("postgresql://", "redis://", "key", "http://a", "http://b")

    services.write(tmp_path, written)

    assert services.read(tmp_path) == written
    assert mode(tmp_path / services.FILE_NAME) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [services.FILE_NAME]


def test_no_services_without_a_supervisor(tmp_path: Path) -> None:
    """A missing file means that nothing runs."""
    assert services.read(tmp_path / "never made") is None


def test_damaged_services_say_what_to_do(tmp_path: Path) -> None:
    """Nobody has to guess what broke."""
    (tmp_path / services.FILE_NAME).write_text("{")

    with pytest.raises(services.UnreadableServicesError, match="remove it and run `make up` again"):
        services.read(tmp_path)
