"""How jobs come in: shorthands, defaults, forms, manifests and the way back."""

from __future__ import annotations

from typing import Any

import pytest

from scheduling.lifecycle.events import LifecycleAction, PolicyEvent
from scheduling.spec.job_spec import JobSpec, RestartPolicy
from scheduling.spec.parse import Format, parse, read
from scheduling.spec.volcano import to_manifest
from tests.unit.spec.manifests import PLAIN, VOLCANO, changed


def accepted(document: Any, form: Format = Format.JSON) -> JobSpec:
    """Parse a document that is expected to be fine."""
    result = parse(document, form=form)
    assert isinstance(result, JobSpec), result
    return result


def test_defaults_are_filled_in() -> None:
    """Queue, retries, minimums and needed plugins come by themselves."""
    spec = accepted(
        {**PLAIN, "plugins": ["mpi"], "roles": [{**PLAIN["roles"][0], "name": "master"}]}
    )

    assert (spec.queue, spec.max_retry, spec.min_available) == ("default", 3, 1)
    assert spec.roles[0].min_available == 1
    assert list(spec.plugins) == ["mpi", "svc", "ssh"]


def test_zero_means_not_set_for_retries_and_gang() -> None:
    """max_retry 0 is 3, min_available 0 is the sum of the roles' minimums."""
    spec = accepted({**PLAIN, "max_retry": 0, "min_available": 0})

    assert (spec.max_retry, spec.min_available) == (3, 4)


def test_partitions_decide_a_roles_minimum() -> None:
    """Without an own minimum it is the least number of groups times their size."""
    policy = {"total_partitions": 3, "partition_size": 2, "min_partitions": 2}
    role = {**PLAIN["roles"][0], "replicas": 6, "partition_policy": policy}

    assert accepted({"name": "a", "roles": [role]}).roles[0].min_available == 4


def test_the_default_queue_is_given_by_the_caller() -> None:
    """A tenant's default takes the place of `default`."""
    spec = parse(PLAIN, form=Format.JSON, default_queue="vision")

    assert isinstance(spec, JobSpec)
    assert spec.queue == "vision"


def test_shorthands_of_the_plain_form() -> None:
    """Amounts, durations, commands and lists can be written the short way."""
    text = """
kind: Job
name: short
time_limit: 1h30m
plugins: [env]
policies:
  - {event: PodFailed, action: RestartJob, timeout: 10m}
roles:
  - name: a
    command: python a.py
    cpu: 1.5
    memory: 2Gi
    gpu: 0.5
    resources: {example.com/disk: "2", ephemeral-storage: 1500}
    env: {A: 1, B: true}
    ports: [80, 443]
  - {name: b, command: x, depends_on: a}
"""

    spec = accepted(text, Format.YAML)
    role = spec.roles[0]

    assert spec.time_limit_seconds == 5400
    assert spec.policies[0].timeout_seconds == 600
    assert spec.policies[0].events == (PolicyEvent.POD_FAILED,)
    assert role.command == ("/bin/sh", "-c", "python a.py")
    assert (role.cpu_milli, role.memory_bytes, role.gpu_milli) == (1500, 2 * 1024**3, 500)
    assert role.resources == {"example.com/disk": 2000, "ephemeral-storage": 1500}
    assert role.env == {"A": "1", "B": "true"}
    assert [port.number for port in role.ports] == [80, 443]
    assert spec.roles[1].depends_on is not None
    assert spec.roles[1].depends_on.names == ("a",)


def test_a_form_is_text_and_empty_means_not_given() -> None:
    """All values are text, empty rows disappear, variables are lines."""
    form = {
        "name": " train ",
        "queue": "",
        "min_available": "",
        "roles": [
            {
                "name": "w",
                "replicas": "3",
                "cpu": "500m",
                "gpu": "",
                "env": "A=1\nB=x=y\n",
                "command": "python a.py",
            },
            {"name": "", "replicas": ""},
        ],
        "policies": [
            {"events": "PodFailed, PodEvicted", "action": "RestartJob", "timeout": ""},
            {"events": "", "action": ""},
        ],
    }

    spec = accepted(form, Format.FORM)

    assert (spec.name, spec.queue, spec.min_available, len(spec.roles)) == (
        "train",
        "default",
        3,
        1,
    )
    assert spec.roles[0].env == {"A": "1", "B": "x=y"}
    assert spec.policies[0].events == (PolicyEvent.POD_FAILED, PolicyEvent.POD_EVICTED)
    assert spec.policies[0].action is LifecycleAction.RESTART_JOB


def test_what_a_template_says_is_lifted_into_fields() -> None:
    """Image, command, amounts and placement of a manifest are read from its template."""
    pod = {
        "restartPolicy": "OnFailure",
        "terminationGracePeriodSeconds": 5,
        "nodeSelector": {"zone": "a"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["a100"]}]}
                    ]
                }
            }
        },
        "initContainers": [{"name": "i", "resources": {"requests": {"cpu": "9"}}}],
        "containers": [
            {
                "name": "main",
                "image": "i",
                "command": ["c"],
                "workingDir": "/w",
                "env": [{"name": "A", "value": "1"}, {"name": "S", "valueFrom": {"x": {}}}],
                "ports": [{"containerPort": 22, "name": "ssh"}],
                "resources": {
                    "requests": {"cpu": "1"},
                    "limits": {"cpu": "2", "nvidia.com/gpu": 2},
                },
            },
            {"name": "side", "resources": {"requests": {"memory": "1Gi"}}},
        ],
    }

    role = accepted(changed(VOLCANO, "spec.tasks.0.template.spec", pod)).roles[0]

    assert (role.image, role.command, role.working_dir) == ("i", ("c",), "/w")
    assert role.request == {"cpu": 9000, "memory": 1024**3, "nvidia.com/gpu": 2000}
    assert role.env == {"A": "1"}
    assert role.restart_policy is RestartPolicy.ON_FAILURE
    assert (role.grace_seconds, role.node_selector) == (5, {"zone": "a"})
    assert role.tolerations[0].operator == "Exists"
    assert role.required_node_terms == ((("gpu", "In", ("a100",)),),)


def test_an_amount_straight_under_resources_is_understood() -> None:
    """It is read as request and limit, and a note says so."""
    resources = {"nvidia.com/gpu": 1}
    path = "spec.tasks.0.template.spec.containers.0.resources"

    parsed = read(changed(VOLCANO, path, resources), form=Format.JSON)

    assert parsed.spec is not None
    assert parsed.spec.roles[0].gpu_milli == 1000
    assert [note.code for note in parsed.notes] == ["amount_read_as_limit"]


def test_an_edited_field_wins_over_the_template() -> None:
    """What a form changed is written into the template, the rest of it stays."""
    path = "spec.tasks.0.template.spec.containers.0"
    container = {
        "name": "main",
        "image": "old",
        "securityContext": {"privileged": False},
        "resources": {"requests": {"cpu": "1"}},
    }
    spec = accepted(changed(VOLCANO, path, container))
    role = spec.roles[0].model_copy(update={"image": "new", "cpu_milli": 250, "env": {"A": "1"}})

    written = to_manifest(spec.model_copy(update={"roles": (role, *spec.roles[1:])}))

    main = written["spec"]["tasks"][0]["template"]["spec"]["containers"][0]
    assert main == {
        "name": "main",
        "image": "new",
        "securityContext": {"privileged": False},
        "resources": {"requests": {"cpu": "250m"}},
        "env": [{"name": "A", "value": "1"}],
    }
    assert accepted(written).roles[0].cpu_milli == 250


def test_a_generated_name_gets_the_callers_suffix() -> None:
    """Chance is not for this package."""
    manifest = changed(VOLCANO, "metadata", {"generateName": "train-"})

    spec = parse(manifest, form=Format.JSON, name_suffix="x7k2q")

    assert isinstance(spec, JobSpec)
    assert spec.name == "train-x7k2q"


@pytest.mark.parametrize(
    ("document", "form", "code"),
    [
        ("", Format.YAML, "empty_document"),
        ("- 1", Format.YAML, "wrong_type"),
        ("a: 1\n---\nb: 1", Format.YAML, "not_one_job"),
        ("a: [", Format.YAML, "not_yaml"),
        ("apiVersion: apps/v1\nkind: Deployment", Format.YAML, "not_a_job"),
        ([1], Format.JSON, "wrong_type"),
    ],
)
def test_what_is_no_job_at_all(document: Any, form: Format, code: str) -> None:
    """The document as a whole is refused, with one reason."""
    result = parse(document, form=form)

    assert not isinstance(result, JobSpec)
    assert [one.code for one in result] == [code]


def test_json_is_bounded_too() -> None:
    """A decoded body that is too deep or too large is not looked at any further."""
    deep: dict[str, Any] = {}
    inner = deep
    for _ in range(100):
        inner["a"] = {}
        inner = inner["a"]

    results = [parse({"x": deep}, form=Format.JSON), parse({"x": [0] * 200_000}, form=Format.JSON)]

    assert [[one.code for one in r] for r in results if isinstance(r, list)] == [
        ["too_many_nodes"]
    ] * 2


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("min_availible", "min_available"),
        ("roles.0.comand", "command"),
        ("roles.0.memroy", "memory"),
    ],
)
def test_an_unknown_field_is_answered_with_the_closest_name(path: str, hint: str) -> None:
    """Job and role have their own names."""
    parsed = read(changed(PLAIN, path, "x"), form=Format.JSON)

    assert [one.params["hint"] for one in parsed.problems] == [hint]
