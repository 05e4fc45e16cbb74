"""Manifests of the first users on simulated nodes: `python -m benchmarks seeds [--folder FOLDER]`.

Posts each manifest as it is to a running installation and prints a JSON object for each: the time
from sending the POST to its answer, to Running and to Completed. A pretended process runs for
RUN_SECONDS, which is part of the last. What is no job, as a PodGroup, prints how it was answered.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx

from benchmarks._installation import running
from scheduling.domain import images
from scheduling.domain.clock import database_now
from scheduling.domain.images import RuleEdit
from scheduling.models import Cluster
from tenants.domain.access import load_actor
from tenants.models import User

REFERENCE_MS = 500.0
RUN_SECONDS = 2.0
SHAPE = f"gpus=8,cpu=64,memory=512Gi,seconds={RUN_SECONDS}"
LOOK_SECONDS = 0.05
PATIENCE_SECONDS = 120.0
ENDED = ("Completed", "Failed", "Terminated", "Aborted")


def offer_images() -> None:
    """Let every image run: a simulated node pretends them all."""
    cluster = Cluster.objects.get()
    images.replace_rules(
        actor=load_actor(User.objects.get(username="admin")),
        cluster_id=cluster.id,
        edits=[RuleEdit("*", "host")],
        expected_version=cluster.version,
        now=database_now(),
    )


def run_one(client: httpx.Client, manifest: Path) -> dict[str, Any]:
    """Submit a manifest and follow its job to the end; return the times in milliseconds."""
    sent = time.time()
    reply = client.post(
        "/api/v1/jobs",
        content=manifest.read_bytes(),
        headers={"Content-Type": "application/yaml"},
    )
    answered = time.time()
    if reply.status_code != httpx.codes.CREATED:
        return {"answer": reply.status_code, "problems": reply.json()}
    address = f"/api/v1/jobs/{reply.json()['id']}"
    deadline = sent + PATIENCE_SECONDS
    while (job := client.get(address).raise_for_status().json())["phase"] not in ENDED:
        if time.time() > deadline:
            raise SystemExit(f"{manifest.name} is {job['phase']} after {PATIENCE_SECONDS:g} s")
        time.sleep(LOOK_SECONDS)
    if job["phase"] != "Completed":
        raise SystemExit(f"{manifest.name} ended as {job['phase']}: {job['message']}")
    return {
        "answer": reply.status_code,
        "post_ms": (answered - sent) * 1000,
        "running_ms": _since(sent, job["started_at"]),
        "completed_ms": _since(sent, job["finished_at"]),
    }


def _since(sent: float, at: str) -> float:
    return (datetime.fromisoformat(at).timestamp() - sent) * 1000


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--folder", type=Path, default=os.environ.get("TERRACE_MANIFESTS"), help="with files/seed-*"
    )
    parser.add_argument("--nodes", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    manifests = sorted(Path(given.folder or ".").glob("files/seed-*.yaml"))
    if not manifests:
        raise SystemExit("--folder or TERRACE_MANIFESTS names no folder with files/seed-*.yaml")
    with running(count=given.nodes, shape=SHAPE) as here, here.client() as client:
        offer_images()
        for manifest in manifests:
            rounds = [run_one(client, manifest) for _ in range(1 + given.rounds)][1:]
            print(json.dumps(_row(manifest.name, rounds)), flush=True)


def _row(name: str, rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Return one line: medians and worst of the rounds; the first, a warm-up, is not among them."""
    row: dict[str, Any] = {"benchmark": f"{name}: POST to Running, worst of {len(rounds)}, ms"}
    if "running_ms" not in rounds[0]:
        return {"benchmark": f"{name}: no job", **rounds[0]}
    worst = max(one["running_ms"] for one in rounds)
    row |= {
        "value": round(worst, 1),
        "reference": REFERENCE_MS,
        "ratio": round(worst / REFERENCE_MS, 3),
    }
    for key in ("post_ms", "running_ms", "completed_ms"):
        row[f"{key}_median"] = round(statistics.median(one[key] for one in rounds), 1)
    return {**row, "load_average": round(os.getloadavg()[0], 1)}


if __name__ == "__main__":
    main()
