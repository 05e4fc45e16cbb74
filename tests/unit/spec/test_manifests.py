"""Real manifests as people wrote them: each is accepted, or refused at the right field.

The folder with them is named by TERRACE_MANIFESTS; without it these tests are left out.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from scheduling.spec.documents import read_documents
from scheduling.spec.job_spec import JobSpec
from scheduling.spec.parse import Format, parse, read
from scheduling.spec.rules import is_subdomain
from scheduling.spec.volcano import to_manifest
from scheduling.spec.yaml_loader import UnreadableDocumentError, load_documents

FOLDER = os.environ.get("TERRACE_MANIFESTS", "")
pytestmark = pytest.mark.skipif(
    not FOLDER, reason="TERRACE_MANIFESTS names no folder of manifests to read"
)
PLACES = {
    "duplicate-event": ("spec.policies", "duplicate_event"),
    "duplicate-task-name": ("spec.tasks[1].name", "duplicate_task_name"),
    "min-available-above-total": ("spec.minAvailable", "min_available_above_total"),
    "no-task": ("spec.tasks", "no_task"),
    "claim-required": ("spec.volumes[0]", "claim_required"),
}


def index() -> list[dict[str, Any]]:
    """Return what is known of each file."""
    if not FOLDER:
        return []
    folder = Path(FOLDER)
    path = (
        folder / "index.json" if (folder / "index.json").exists() else folder.parent / "index.json"
    )
    entries: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["manifests"]
    return entries


def text_of(entry: dict[str, Any]) -> str:
    """Return the text of a file."""
    folder = Path(FOLDER)
    name = Path(entry["file"]).name
    path = folder / name if (folder / name).exists() else folder / "files" / name
    return path.read_text(encoding="utf-8")


JOBS = [
    pytest.param(entry, document, id=f"{entry['id']}:{document['doc']}")
    for entry in index()
    for document in entry["documents"]
    if document.get("kind") == "Job" and document["parse_ok"]
]


@pytest.mark.parametrize(("entry", "known"), JOBS)
def test_a_job_is_accepted_or_refused_at_the_right_field(
    entry: dict[str, Any], known: dict[str, Any]
) -> None:
    """As the rules say; what is accepted survives the way out and back."""
    documents = load_documents(text_of(entry))
    jobs = [one for one in documents if isinstance(one, dict) and one.get("kind") == "Job"]
    numbers = [one["doc"] for one in entry["documents"] if one.get("kind") == "Job"]
    document = jobs[numbers.index(known["doc"])]

    parsed = read(document, form=Format.JSON, name_suffix="x1")

    expected = known["expected_admission"]
    if expected["job_rules_ok"]:
        assert parsed.problems == ()
        assert parsed.spec is not None
        assert parse(to_manifest(parsed.spec), form=Format.JSON) == parsed.spec
    else:
        places = [(one.path, one.code) for one in parsed.problems]
        assert places
        wanted = [PLACES[word] for word in expected["keywords"] if word in PLACES]
        assert [place for place in wanted if place not in places] == []


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(entry, id=entry["id"])
        for entry in index()
        if not all(document["parse_ok"] for document in entry["documents"])
    ],
)
def test_what_is_no_yaml_is_refused_with_its_line(entry: dict[str, Any]) -> None:
    """The place is named."""
    with pytest.raises(UnreadableDocumentError) as refusal:
        load_documents(text_of(entry))

    assert refusal.value.problem.params["line"]


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(entry, id=entry["id"])
        for entry in index()
        if entry["id"].startswith("seed-") and entry["documents"][0]["kind"] == "Job"
    ],
)
def test_the_first_manifests_are_accepted_as_they_are(entry: dict[str, Any]) -> None:
    """As YAML text, with nothing changed."""
    assert isinstance(parse(text_of(entry), form=Format.YAML), JobSpec)


SUPPORTED = {
    "Queue": "scheduling.volcano.sh",
    "PodGroup": "scheduling.volcano.sh",
    "PriorityClass": "scheduling.k8s.io",
    "JobFlow": "flow.volcano.sh",
    "JobTemplate": "flow.volcano.sh",
    "CronJob": "batch.volcano.sh",
}


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(entry, id=entry["id"])
        for entry in index()
        if all(document["parse_ok"] for document in entry["documents"])
    ],
)
def test_every_other_document_is_read_or_refused_by_its_kind(entry: dict[str, Any]) -> None:
    """What is neither a job nor of a kind that Terrace knows is refused at `kind`."""
    listed = entry["documents"]
    apis = {(d.get("kind"), d.get("name") or ""): d.get("api_version") for d in listed}
    for imported in read_documents(text_of(entry)):
        if imported.kind == "Job":
            continue
        api = str(apis.get((imported.kind, imported.name)) or "")
        is_supported = imported.kind in SUPPORTED and api.startswith(SUPPORTED[imported.kind])
        unnamed = [] if is_subdomain(imported.name) else ["metadata.name"]
        places = [problem.path for problem in imported.problems]
        assert places == (unnamed if is_supported else ["kind"])
