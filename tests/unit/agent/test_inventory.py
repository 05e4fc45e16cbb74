"""What the agent finds out about its machine."""

from __future__ import annotations

from pathlib import Path

from worker.agent.config import Runtime, RuntimeKind
from worker.agent.inventory import read_images, runtime_info
from worker.protocol import RuntimeInfo


def test_images_are_the_files_of_a_runtimes_folder(tmp_path: Path) -> None:
    """Files with an image's ending, by name, with their bytes; nothing else counts."""
    (tmp_path / "nvidia+pytorch+24.01.sqsh").write_bytes(b"1234")
    (tmp_path / "notes.txt").write_bytes(b"1")
    (tmp_path / "folder.sif").mkdir()
    (tmp_path / "gone.sif").symlink_to(tmp_path / "nowhere")

    enroot = Runtime("enroot", RuntimeKind.WRAPPER, argv=("x",), images=str(tmp_path))

    assert runtime_info(enroot) == RuntimeInfo(
        "enroot", "wrapper", images={"nvidia+pytorch+24.01": 4}
    )


def test_a_folder_that_cannot_be_read_holds_no_images(tmp_path: Path) -> None:
    """The node joins all the same; so does one whose runtime names none."""
    assert read_images(tmp_path / "missing") == {}
    assert runtime_info(Runtime("host", RuntimeKind.HOST)).images == {}
