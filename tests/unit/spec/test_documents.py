"""Files with several objects: what each document becomes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduling.lifecycle.flows import FlowStep
from scheduling.spec.documents import (
    FlowManifest,
    GangManifest,
    PriorityClassManifest,
    QueueManifest,
    ScheduleManifest,
    TemplateManifest,
    queue_to_manifest,
    read_documents,
)
from scheduling.spec.job_spec import JobSpec
from scheduling.spec.problem_texts import PROBLEM_TEXTS
from tests.unit.spec.manifests import VOLCANO


def one(document: Mapping[str, Any]) -> Any:
    """Read a file of one document."""
    (imported,) = read_documents(yaml.safe_dump(document))
    return imported


def problems(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return place and code of what is wrong with a document, each with a sentence."""
    found = one(document).problems
    assert all(PROBLEM_TEXTS[p.code].format(**p.params) for p in found)
    return [(p.path, p.code) for p in found]


def queue(**spec: Any) -> dict[str, Any]:
    """Make a queue's manifest."""
    api = "scheduling.volcano.sh/v1beta1"
    return {"apiVersion": api, "kind": "Queue", "metadata": {"name": "q"}, "spec": spec}


def test_a_file_of_several_objects_is_read_one_by_one() -> None:
    """Jobs, queues and refused kinds stand side by side; empty documents disappear."""
    text = "\n---\n".join(
        [
            yaml.safe_dump(VOLCANO),
            "",
            yaml.safe_dump(queue(weight=2)),
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}",
            "- 1",
        ]
    )

    imported = read_documents(text)

    assert [(i.position, i.kind, i.name) for i in imported] == [
        (0, "Job", "train"),
        (1, "Queue", "q"),
        (2, "Deployment", "web"),
        (3, "", ""),
    ]
    assert isinstance(imported[0].value, JobSpec)
    assert imported[1].value == QueueManifest("q", weight=2)
    assert [p.code for p in imported[2].problems + imported[3].problems] == [
        "unsupported_kind",
        "wrong_type",
    ]


def test_an_unreadable_file_is_one_refused_document() -> None:
    """With the place of the fault."""
    (imported,) = read_documents("a: [")

    assert [p.code for p in imported.problems] == ["not_yaml"]


def test_a_queue_keeps_its_amounts_and_what_terrace_does_not_use() -> None:
    """Guarantee is min, capability is max; affinity is kept for the way back."""
    affinity = {"nodeGroupAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": ["a"]}}
    imported = one(
        queue(
            weight=4,
            parent="root",
            priority=3,
            reclaimable=False,
            capability={"cpu": "8", "memory": "16Gi", "nvidia.com/gpu": 2},
            deserved={"cpu": 4},
            guarantee={"resource": {"cpu": "500m"}},
            affinity=affinity,
            dequeueStrategy="fifo",
            colour="red",
        )
    )

    assert imported.value == QueueManifest(
        name="q",
        parent="root",
        weight=4,
        priority=3,
        min={"cpu": 500},
        max={"cpu": 8000, "memory": 16 * 1024**3, "nvidia.com/gpu": 2000},
        deserved={"cpu": 4000},
        reclaimable=False,
        is_fifo=True,
        remainder={"affinity": affinity},
    )
    assert [(n.path, n.code) for n in imported.notes] == [("spec.colour", "field_ignored")]


amounts = st.dictionaries(
    st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]), st.integers(0, 2**40), max_size=3
)


@settings(max_examples=60, deadline=None)
@given(
    st.builds(
        QueueManifest,
        name=st.just("q"),
        parent=st.sampled_from(["", "root"]),
        weight=st.integers(1, 65_535),
        priority=st.integers(0, 100),
        max=amounts,
        reclaimable=st.booleans(),
        is_fifo=st.booleans(),
        is_closed=st.booleans(),
        labels=st.sampled_from([{}, {"a": "b"}]),
    )
)
def test_a_queue_survives_the_way_out_and_back(manifest: QueueManifest) -> None:
    """Written and read again it is the same."""
    assert one(queue_to_manifest(manifest)).value == manifest


@pytest.mark.parametrize(
    ("spec", "place", "code"),
    [
        ({"weight": 0}, "spec.weight", "weight_out_of_range"),
        ({"weight": "x"}, "spec.weight", "wrong_type"),
        ({"capability": {"cpu": "much"}}, "spec.capability.cpu", "not_a_quantity"),
        ({"capability": {"cpu": -1}}, "spec.capability.cpu", "negative_number"),
        (
            {"guarantee": {"resource": {"cpu": 2}}, "capability": {"cpu": 1}},
            "spec.guarantee.resource.cpu",
            "min_above_max",
        ),
        (
            {"guarantee": {"resource": {"cpu": 2}}, "deserved": {"cpu": 1}},
            "spec.guarantee.resource.cpu",
            "deserved_below_min",
        ),
        (
            {"deserved": {"cpu": 2}, "capability": {"cpu": 1}},
            "spec.deserved.cpu",
            "deserved_above_max",
        ),
    ],
)
def test_what_is_wrong_with_a_queue(spec: dict[str, Any], place: str, code: str) -> None:
    """Named at its place."""
    assert problems(queue(**spec)) == [(place, code)]


def test_a_priority_class_is_a_name_for_a_number() -> None:
    """The value is needed."""
    manifest = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "high"},
        "value": 1000,
    }

    assert one(manifest).value == PriorityClassManifest("high", 1000)
    assert problems({**manifest, "value": None}) == [("value", "required")]


def test_a_gang_record_of_a_foreign_workload() -> None:
    """Its minimum, queue and phase are read."""
    manifest = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "n"},
        "spec": {"minMember": 4, "minTaskMember": {"w": 3}, "minResources": {"cpu": 2}},
        "status": {"phase": "Pending"},
    }

    assert one(manifest).value == GangManifest(
        "g", "n", "default", 4, {"w": 3}, {"cpu": "2"}, "", "Pending"
    )
    manifest["spec"] = {"minTaskMember": {"w": "x"}}
    assert problems(manifest) == [("spec.minTaskMember.w", "wrong_type")]


def flow(*steps: dict[str, Any]) -> dict[str, Any]:
    """Make a flow's manifest."""
    return {
        "apiVersion": "flow.volcano.sh/v1alpha1",
        "kind": "JobFlow",
        "metadata": {"name": "f"},
        "spec": {"jobRetainPolicy": "delete", "flows": list(steps)},
    }


def test_a_flow_is_its_steps() -> None:
    """With what they wait for and what they change in their templates."""
    patch = {"spec": {"queue": "other"}}
    manifest = flow({"name": "a", "patch": patch}, {"name": "b", "dependsOn": {"targets": ["a"]}})

    assert one(manifest).value == FlowManifest(
        "f", (FlowStep("a"), FlowStep("b", ("a",))), keeps_jobs=False, patches={"a": patch}
    )


@pytest.mark.parametrize(
    ("steps", "place", "code"),
    [
        ([{"name": "a"}, {"name": "a"}], "spec.flows[1].name", "duplicate_step"),
        (
            [{"name": "a", "dependsOn": {"targets": ["b"]}}],
            "spec.flows[0].dependsOn.targets",
            "unknown_step",
        ),
        (
            [
                {"name": "a", "dependsOn": {"targets": ["b"]}},
                {"name": "b", "dependsOn": {"targets": ["a"]}},
            ],
            "spec.flows",
            "flow_cycle",
        ),
        ([{"name": ""}], "spec.flows[0].name", "required"),
    ],
)
def test_what_is_wrong_with_a_flow(steps: list[dict[str, Any]], place: str, code: str) -> None:
    """Names twice, unknown targets and cycles."""
    assert problems(flow(*steps)) == [(place, code)]


def test_a_template_is_a_job_without_run() -> None:
    """Its problems are named inside it."""
    manifest = {
        "apiVersion": "flow.volcano.sh/v1alpha1",
        "kind": "JobTemplate",
        "metadata": {"name": "t"},
        "spec": VOLCANO["spec"],
    }

    value = one(manifest).value
    assert isinstance(value, TemplateManifest)
    assert (value.name, value.spec.task_count) == ("t", 4)
    assert problems({**manifest, "spec": {**VOLCANO["spec"], "minAvailable": 9}}) == [
        ("spec.minAvailable", "min_available_above_total")
    ]


def schedule(**spec: Any) -> dict[str, Any]:
    """Make a schedule's manifest."""
    template = {"spec": VOLCANO["spec"]}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "CronJob",
        "metadata": {"name": "c"},
        "spec": {"schedule": "*/5 * * * *", "jobTemplate": template, **spec},
    }


def test_a_schedule_has_volcanos_defaults() -> None:
    """Three successes and one failure are kept, several jobs may run at once."""
    value = one(schedule(timeZone="Europe/Berlin")).value

    assert isinstance(value, ScheduleManifest)
    assert (value.keep_successful, value.keep_failed, value.concurrency) == (3, 1, "Allow")
    assert value.time_zone == "Europe/Berlin"


@pytest.mark.parametrize(
    ("spec", "place", "code"),
    [
        ({"schedule": "often"}, "spec.schedule", "not_a_schedule"),
        ({"timeZone": "Local"}, "spec.timeZone", "local_zone"),
        ({"concurrencyPolicy": "Maybe"}, "spec.concurrencyPolicy", "invalid_choice"),
        ({"failedJobsHistoryLimit": -1}, "spec.failedJobsHistoryLimit", "negative_number"),
        ({"jobTemplate": {"spec": {"tasks": []}}}, "spec.jobTemplate.spec.tasks", "no_task"),
    ],
)
def test_what_is_wrong_with_a_schedule(spec: dict[str, Any], place: str, code: str) -> None:
    """The job inside is judged already when the schedule is saved."""
    assert problems(schedule(**spec)) == [(place, code)]


def test_an_object_without_kind_is_refused() -> None:
    """Nobody guesses."""
    assert problems({"metadata": {"name": "x"}}) == [("kind", "required")]


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(
        [
            ("scheduling.volcano.sh/v1beta1", "Queue"),
            ("scheduling.volcano.sh/v1beta1", "PodGroup"),
            ("scheduling.k8s.io/v1", "PriorityClass"),
            ("flow.volcano.sh/v1alpha1", "JobFlow"),
            ("flow.volcano.sh/v1alpha1", "JobTemplate"),
            ("batch.volcano.sh/v1alpha1", "CronJob"),
        ]
    ),
    st.recursive(
        st.none() | st.integers(-3, 3) | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "flows",
                        "name",
                        "dependsOn",
                        "targets",
                        "weight",
                        "guarantee",
                        "resource",
                        "tasks",
                        "schedule",
                    ]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    ),
)
def test_no_object_raises(kind: tuple[str, str], spec: Any) -> None:
    """Whatever stands in it, the answer is a value or a list of problems."""
    document = {"apiVersion": kind[0], "kind": kind[1], "metadata": {"name": "x"}, "spec": spec}

    imported = one(document)

    assert (imported.value is None) == bool(imported.problems)
