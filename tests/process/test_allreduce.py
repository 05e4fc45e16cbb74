"""The example training over real processes: equal models, metrics, a checkpoint to go on from."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np

PROGRAM = Path(__file__).resolve().parents[2] / "examples" / "allreduce" / "train.py"
WORLD = 3


def free_port() -> int:
    """Return a port that nobody uses now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def run(folder: Path, *arguments: str) -> list[subprocess.CompletedProcess[str]]:
    """Run the training with three processes to their end."""
    port = free_port()
    started = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), "--pause", "0", "--report-every", "5", *arguments],
            env={
                **os.environ,
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "RANK": str(rank),
                "WORLD_SIZE": str(WORLD),
                "OMP_NUM_THREADS": "1",
                "OPENBLAS_NUM_THREADS": "1",
                "TERRACE_METRICS": str(folder / f"metrics-{rank}"),
                "TERRACE_OUTPUT": str(folder / f"out-{rank}"),
                "TERRACE_JOB_DIR": str(folder / "job"),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(WORLD)
    ]
    ended = []
    for process in started:
        output, _ = process.communicate(timeout=120)
        ended.append(subprocess.CompletedProcess(process.args, process.returncode, output))
    return ended


def test_the_training_learns_saves_and_goes_on(tmp_path: Path) -> None:
    """The loss falls, rank 0 writes model and metrics, a second run goes on where it ended."""
    (tmp_path / "job").mkdir()

    first = run(tmp_path, "--steps", "40")
    second = run(tmp_path, "--steps", "45")

    assert [process.returncode for process in first + second] == [0] * (2 * WORLD), first
    lines = (tmp_path / "metrics-0").read_text(encoding="utf-8").splitlines()
    losses = [json.loads(line)["loss"] for line in lines]
    assert losses[-1] < losses[0] / 2
    assert not (tmp_path / "out-1").exists()
    with np.load(tmp_path / "out-0" / "model.npz") as model:
        assert np.isfinite(model["parameters"]).all()
    assert "going on at step 36" in second[1].stdout


def test_a_failed_process_ends_the_ring(tmp_path: Path) -> None:
    """The others do not hang; the next run does not fail again."""
    (tmp_path / "job").mkdir()

    first = run(tmp_path, "--steps", "20", "--fail-at", "10")
    second = run(tmp_path, "--steps", "20", "--fail-at", "10")

    assert [process.returncode for process in first] == [1, 1, 1]
    assert [process.returncode for process in second] == [0, 0, 0]
