"""The pure parts of the pages' scripts are tested by Node.js's own runner."""

import shutil
import subprocess
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent.parent


def test_scripts_pass_their_tests() -> None:
    """`node --test tests/js/` passes; `make test` sees to Node.js."""
    node = shutil.which("node")
    assert node is not None, "Node.js is missing; `make test` installs it"

    done = subprocess.run(
        [node, "--test", "tests/js/"], cwd=CHECKOUT, capture_output=True, check=False, text=True
    )

    assert done.returncode == 0, done.stdout
