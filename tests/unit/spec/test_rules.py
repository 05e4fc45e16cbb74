"""Every rule refuses what breaks it, at the right place, in the words of the document."""

from __future__ import annotations

from typing import Any

import pytest

from scheduling.spec.job_spec import JobSpec
from scheduling.spec.parse import Format, parse, read
from scheduling.spec.problem_texts import NOTE_TEXTS, PROBLEM_TEXTS
from scheduling.spec.rules import QueueFacts, check_queue, check_update
from tests.unit.spec.manifests import PLAIN, VOLCANO, changed

FAILED = {"event": "PodFailed", "action": "RestartJob"}

RULES: list[tuple[str, Any, str, str]] = [
    ("roles", [], "roles", "no_task"),
    ("plugins", {"mpi": {}}, "plugins.mpi", "mpi_master_missing"),
    ("roles.1.min_available", 4, "roles[1].min_available", "task_min_above_replicas"),
    ("roles.1.replicas", -1, "roles[1].replicas", "negative_number"),
    ("roles.1.name", "ps", "roles[1].name", "duplicate_task_name"),
    ("roles.1.name", "Worker", "roles[1].name", "invalid_name"),
    ("name", "n" * 58, "roles[1].name", "pod_name_too_long"),
    ("name", "Train", "name", "invalid_job_name"),
    ("name", "1train", "name", "invalid_job_name"),
    ("min_available", 5, "min_available", "min_available_above_total"),
    ("min_available", -1, "min_available", "negative_number"),
    ("policies", [{**FAILED, "exit_code": 3}], "policies[0]", "event_and_exit_code"),
    ("policies", [{"action": "AbortJob"}], "policies[0]", "no_event_no_exit_code"),
    ("policies", [{**FAILED, "event": "Boom"}], "policies[0].events[0]", "invalid_event"),
    ("policies", [{**FAILED, "event": "OutOfSync"}], "policies[0].events", "invalid_event"),
    ("policies", [{**FAILED, "action": "Explode"}], "policies[0].action", "invalid_action"),
    (
        "policies",
        [{"exit_code": 3, "action": "SyncJob"}],
        "policies[0].action",
        "invalid_action",
    ),
    ("policies", [FAILED, FAILED], "policies", "duplicate_event"),
    (
        "policies",
        [{"exit_code": 0, "action": "AbortJob"}],
        "policies[0].exit_code",
        "exit_code_zero",
    ),
    ("policies", [{"exit_code": 3, "action": "AbortJob"}] * 2, "policies", "duplicate_exit_code"),
    ("policies", [FAILED, {**FAILED, "event": "*"}], "policies", "any_event_not_alone"),
    ("roles.0.policies", [FAILED, FAILED], "roles[0].policies", "duplicate_event"),
    ("plugins", ["nosuch"], "plugins.nosuch", "unknown_plugin"),
    ("plugins", {"svc": {"colour": 1}}, "plugins.svc.colour", "unknown_option"),
    ("plugins", {"svc": ["--colour=1"]}, "plugins.svc", "unknown_option"),
    ("plugins", {"pytorch": {"port": "x"}}, "plugins.pytorch.port", "wrong_option"),
    ("plugins", {"ray": {}}, "plugins.ray", "ray_head_missing"),
    ("volumes", [{"claim_name": "a"}], "volumes[0].mount_path", "mount_path_required"),
    ("volumes", [{"mount_path": "/a"}], "volumes[0]", "claim_required"),
    (
        "volumes",
        [{"mount_path": "/a", "claim_name": "a", "claim": {}}],
        "volumes[0]",
        "claim_name_and_template",
    ),
    (
        "volumes",
        [{"mount_path": "/a", "claim_name": "A_"}],
        "volumes[0].claim_name",
        "invalid_name",
    ),
    (
        "volumes",
        [{"mount_path": "/a", "claim_name": "a"}, {"mount_path": "/a", "claim_name": "b"}],
        "volumes[1].mount_path",
        "duplicate_mount_path",
    ),
    (
        "volumes",
        [{"mount_path": "/a", "claim_name": "a"}, {"mount_path": "/b", "claim_name": "a"}],
        "volumes[1].claim_name",
        "duplicate_claim",
    ),
    ("volumes", [{"mount_path": "/a:b", "claim": {}}], "volumes[0].mount_path", "colon_in_path"),
    ("roles.1.depends_on", ["ghost"], "roles[1].depends_on", "unknown_dependency"),
    ("roles.1.depends_on", ["worker"], "roles[1].depends_on", "dependency_not_acyclic"),
    (
        "network_topology",
        {"highest_tier_allowed": 1, "highest_tier_name": "rack"},
        "network_topology",
        "tier_number_and_name",
    ),
    (
        "roles.1.partition_policy",
        {"total_partitions": 2, "partition_size": 2},
        "roles[1].replicas",
        "replicas_not_partition_product",
    ),
    (
        "roles.1.partition_policy",
        {"total_partitions": 0, "partition_size": 2},
        "roles[1].partition_policy.total_partitions",
        "partition_count_not_positive",
    ),
    ("min_success", 0, "min_success", "below_one"),
    ("min_success", 9, "min_success", "min_success_above_total"),
    ("roles.1.memory", "much", "roles[1].memory", "not_a_quantity"),
    ("roles.1.resources", {"cpu": "4"}, "roles[1].resources.cpu", "resource_has_field"),
    ("roles.1.resources", {"memory": 1024}, "roles[1].resources.memory", "resource_has_field"),
    (
        "roles.1.resources",
        {"nvidia.com/gpu": 1},
        "roles[1].resources.nvidia.com/gpu",
        "resource_has_field",
    ),
    (
        "roles.1.resources",
        {"amd.com/gpu": 1},
        "roles[1].resources.amd.com/gpu",
        "resource_not_whole",
    ),
    ("roles.1.gpu", "1.5", "roles[1].gpu_milli", "gpu_fraction_above_one"),
    ("roles.1.replicas", 200_000, "roles", "too_many_tasks"),
    ("roles.1.command", ["a\0b"], "roles[1].command[0]", "nul_character"),
    ("roles.1.command", [], "roles[1].command", "nothing_to_run"),
    ("roles.1.env", {"1=2": "x"}, "roles[1].env", "invalid_env_name"),
    ("roles.1.ports", [70_000], "roles[1].ports[0].number", "not_a_port"),
    ("roles.1.topology_policy", "restricted", "roles[1].cpu_milli", "cpu_not_integer"),
    ("roles.1.cpu_limit", "100m", "roles[1].cpu_milli", "request_above_limit"),
    ("code", {"source": "git", "url": "rm -rf"}, "code.url", "not_a_git_url"),
    ("code", {"source": "archive"}, "code.archive_id", "required"),
    (
        "code",
        {"source": "git", "url": "https://host/x", "sub_path": "../x"},
        "code.sub_path",
        "path_leaves_folder",
    ),
    ("time_limit", "soon", "time_limit_seconds", "not_a_duration"),
    ("roles.1.replicsa", 3, "roles[1].replicsa", "unknown_field"),
    ("roles.1.replicas", "many", "roles[1].replicas", "wrong_type"),
    ("roles.1.restart_policy", "Perhaps", "roles[1].restart_policy", "invalid_choice"),
    ("max_retry", 2**40, "max_retry", "number_too_large"),
]


def problems_of(document: Any, form: Format = Format.JSON) -> list[tuple[str, str]]:
    """Parse and return place and code of each problem."""
    result = parse(document, form=form)
    return [] if isinstance(result, JobSpec) else [(one.path, one.code) for one in result]


@pytest.mark.parametrize(("path", "value", "place", "code"), RULES)
def test_a_broken_rule_is_refused_at_its_place(
    path: str, value: Any, place: str, code: str
) -> None:
    """The plain job is fine, and one change makes exactly this problem, with a sentence."""
    assert problems_of(PLAIN) == []

    parsed = read(changed(PLAIN, path, value), form=Format.JSON)

    assert [(one.path, one.code) for one in parsed.problems] == [(place, code)]
    for problem in parsed.problems:
        assert PROBLEM_TEXTS[problem.code].format(**problem.params)


@pytest.mark.parametrize(
    ("path", "value", "place", "code"),
    [
        ("spec.tasks", [], "spec.tasks", "no_task"),
        ("metadata.name", "", "metadata.name", "required"),
        ("spec.minAvailable", 9, "spec.minAvailable", "min_available_above_total"),
        ("spec.minAvailable", "9", "spec.minAvailable", "wrong_type"),
        ("spec.tasks.1.replicas", -2, "spec.tasks[1].replicas", "negative_number"),
        ("spec.tasks.1.name", "ps", "spec.tasks[1].name", "duplicate_task_name"),
        (
            "spec.tasks.1.dependsOn",
            {"name": ["ghost"]},
            "spec.tasks[1].dependsOn",
            "unknown_dependency",
        ),
        (
            "spec.policies",
            [{**FAILED, "action": "No"}],
            "spec.policies[0].action",
            "invalid_action",
        ),
        ("spec.plugins", {"svc": ["--no"]}, "spec.plugins.svc", "unknown_option"),
        (
            "spec.tasks.0.template.spec.containers.0.resources",
            {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}},
            "spec.tasks[0].template.spec.containers[0].resources.requests",
            "request_above_limit",
        ),
        (
            "spec.tasks.0.template.spec.containers",
            [],
            "spec.tasks[0].template.spec.containers",
            "no_container",
        ),
        (
            "spec.tasks.0.template.spec.containers.0.image",
            ["x"],
            "spec.tasks[0].template.spec.containers[0].image",
            "wrong_type",
        ),
        (
            "metadata.annotations",
            {"volcano.sh/sla-waiting-time": "soon"},
            "metadata.annotations.volcano.sh/sla-waiting-time",
            "not_a_duration",
        ),
    ],
)
def test_a_manifest_is_judged_in_its_own_words(
    path: str, value: Any, place: str, code: str
) -> None:
    """The same rules name fields as the manifest writes them."""
    assert (place, code) in problems_of(changed(VOLCANO, path, value))


def test_form_yaml_and_json_say_the_same() -> None:
    """One broken job has the same problems in all three forms."""
    broken = changed(changed(PLAIN, "min_available", 9), "roles.0.name", "X")
    yaml_text = """
name: train
min_available: 9
roles:
  - {name: X, replicas: 1, command: [run], cpu_milli: 500}
  - {name: worker, replicas: 3, command: [run], cpu_milli: 500}
"""
    form = changed(changed(broken, "min_available", "9"), "roles.1.replicas", "3")

    found = [
        problems_of(broken),
        problems_of(yaml_text, Format.YAML),
        problems_of({**form, "queue": "", "ttl_seconds": ""}, Format.FORM),
    ]

    assert (
        found
        == [[("roles[0].name", "invalid_name"), ("min_available", "min_available_above_total")]] * 3
    )


def test_all_problems_are_reported_together() -> None:
    """A wrong type does not hide a broken rule elsewhere."""
    broken = changed(changed(PLAIN, "name", "X"), "roles.0.replicas", "many")

    assert problems_of(broken) == [
        ("roles[0].replicas", "wrong_type"),
        ("name", "invalid_job_name"),
    ]


@pytest.mark.parametrize(
    ("queue", "code"),
    [
        (None, "queue_not_found"),
        (QueueFacts("q", state="Closing"), "queue_not_open"),
        (QueueFacts("q", state=""), "queue_not_open"),
        (QueueFacts("root", is_root=True), "root_queue"),
        (QueueFacts("q", children=2), "not_leaf_queue"),
    ],
)
def test_a_queue_that_takes_no_jobs(queue: QueueFacts | None, code: str) -> None:
    """Missing, closed, inner and root queues are refused."""
    assert [one.code for one in check_queue("q", queue)] == [code]


def test_an_open_leaf_takes_jobs() -> None:
    """Nothing stands against it."""
    assert check_queue("q", QueueFacts("q")) == []


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("roles.1.replicas", 5, []),
        ("roles.1.min_available", 1, []),
        ("min_available", 2, []),
        ("priority_class", "high", []),
        ("roles.1.replicas", 0, ["task_min_above_replicas", "min_available_above_total"]),
        ("roles.1.name", "other", ["immutable_field"]),
        ("queue", "other", ["immutable_field"]),
        ("max_retry", 7, ["immutable_field"]),
        ("roles.1.env", {"A": "1"}, ["immutable_field"]),
    ],
)
def test_what_may_change_on_a_submitted_job(path: str, value: Any, expected: list[str]) -> None:
    """Sizes and priority may, everything else may not."""
    old = parse(changed(PLAIN, "roles.1.min_available", 3), form=Format.JSON)
    assert isinstance(old, JobSpec)
    new = JobSpec.model_validate(changed(old.model_dump(), path, value))

    assert sorted(one.code for one in check_update(old, new)) == sorted(expected)


def test_roles_cannot_be_added_later() -> None:
    """The number of roles is fixed."""
    old = parse(PLAIN, form=Format.JSON)
    assert isinstance(old, JobSpec)
    fewer = old.model_copy(update={"roles": old.roles[:1]})

    assert [one.code for one in check_update(old, fewer)] == ["tasks_added_or_removed"]


@pytest.mark.parametrize(
    ("path", "value", "place", "code"),
    [
        (
            "policies",
            [{"event": "PodPending", "action": "AbortJob"}],
            "policies[0]",
            "pending_without_timeout",
        ),
        ("policies", [{"event": "Unknown", "action": "RestartPod"}], "policies[0]", "no_target"),
        (
            "roles.0.policies",
            [{"event": "PodFailed", "action": "RestartPartition"}],
            "roles[0].policies[0]",
            "no_partitions",
        ),
    ],
)
def test_what_is_accepted_with_a_warning(path: str, value: Any, place: str, code: str) -> None:
    """A note says what will have no effect; the job is accepted."""
    parsed = read(changed(PLAIN, path, value), form=Format.JSON)

    assert parsed.spec is not None
    assert [(one.path, one.code) for one in parsed.notes] == [(place, code)]
    assert all(NOTE_TEXTS[one.code].format(**one.params) for one in parsed.notes)


def test_a_gang_that_waits_for_itself_is_pointed_out() -> None:
    """A stated min_available that counts tasks which wait for others is accepted with a warning."""
    waiting = changed(PLAIN, "roles.1.depends_on", ["ps"])

    stated = read(changed(waiting, "min_available", 4), form=Format.JSON)
    left_out = read(waiting, form=Format.JSON)

    assert [(one.path, one.code) for one in stated.notes] == [
        ("min_available", "gang_waits_for_itself")
    ]
    assert left_out.spec is not None
    assert (left_out.spec.min_available, left_out.notes) == (1, ())
