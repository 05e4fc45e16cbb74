"""Pod templates: what is read out of them, what edits write into them, and what is odd in them."""

from __future__ import annotations

from typing import Any

import pytest

from scheduling.spec.job_spec import (
    CodeSource,
    JobKind,
    JobSpec,
    Port,
    RestartPolicy,
    RoleSpec,
    Toleration,
    VolumeSpec,
)
from scheduling.spec.parse import Format, parse, read
from scheduling.spec.volcano import to_manifest
from tests.unit.spec.manifests import PLAIN, VOLCANO, changed

CONTAINER = "spec.tasks.0.template.spec.containers.0"


def spec_of(document: Any) -> JobSpec:
    """Parse a document that is fine."""
    result = parse(document, form=Format.JSON)
    assert isinstance(result, JobSpec), result
    return result


def first_pod(spec: JobSpec) -> dict[str, Any]:
    """Return the first role's pod as it is written out."""
    pod: dict[str, Any] = to_manifest(spec)["spec"]["tasks"][0]["template"]["spec"]
    return pod


def edited(spec: JobSpec, **fields: Any) -> JobSpec:
    """Change fields of the first role, as a form does."""
    role = spec.roles[0].model_copy(update=fields)
    return spec.model_copy(update={"roles": (role, *spec.roles[1:])})


def test_edits_of_placement_are_written_into_the_template() -> None:
    """Tolerations, selectors, grace and restarts."""
    tolerations = (
        Toleration(key="gpu", operator="Exists", effect="NoSchedule", toleration_seconds=60),
    )

    spec = edited(
        spec_of(VOLCANO),
        tolerations=tolerations,
        node_selector={"zone": "a"},
        grace_seconds=5,
        restart_policy=RestartPolicy.ALWAYS,
        ports=(Port(number=53, name="dns", protocol="UDP"),),
        command=("run",),
        args=("--fast",),
        priority_class="high",
    )
    pod = first_pod(spec)

    assert pod["tolerations"] == [
        {
            "key": "gpu",
            "effect": "NoSchedule",
            "operator": "Exists",
            "tolerationSeconds": 60,
        }
    ]
    assert (pod["nodeSelector"], pod["terminationGracePeriodSeconds"]) == ({"zone": "a"}, 5)
    assert (pod["restartPolicy"], pod["priorityClassName"]) == ("Always", "high")
    main = pod["containers"][0]
    assert main["ports"] == [{"containerPort": 53, "name": "dns", "protocol": "UDP"}]
    assert (main["command"], main["args"]) == (["run"], ["--fast"])
    assert spec_of(to_manifest(spec)).roles[0].tolerations == tolerations


def test_an_edit_that_takes_something_away_takes_it_out_of_the_template() -> None:
    """An empty value leaves no key behind."""
    spec = spec_of(changed(VOLCANO, f"{CONTAINER}.workingDir", "/w"))

    main = first_pod(edited(spec, working_dir="", image="x"))["containers"][0]

    assert main == {"name": "main", "image": "x"}


def test_edited_amounts_leave_those_of_other_containers_alone() -> None:
    """The main container gets what is left; limits and other resources are written too."""
    containers = [
        {"name": "main", "image": "i", "resources": {"requests": {"cpu": "1"}, "claims": []}},
        {"name": "side", "resources": {"requests": {"cpu": "500m"}}},
    ]
    spec = spec_of(changed(VOLCANO, "spec.tasks.0.template.spec.containers", containers))

    role = edited(
        spec,
        cpu_milli=2500,
        memory_bytes=1024**3,
        gpu_milli=2000,
        resources={"ephemeral-storage": 2048, "a.b/c": 1000},
        cpu_limit_milli=3000,
        memory_limit_bytes=2 * 1024**3,
    )
    pod = first_pod(role)

    assert pod["containers"][0]["resources"] == {
        "requests": {"cpu": "2", "memory": "1Gi", "ephemeral-storage": "2Ki"},
        "limits": {"nvidia.com/gpu": "2", "a.b/c": "1", "cpu": "3", "memory": "2Gi"},
        "claims": [],
    }
    assert pod["containers"][1] == containers[1]


def test_an_amount_straight_under_resources_moves_to_its_place_when_edited() -> None:
    """What was understood is written regularly."""
    spec = spec_of(changed(VOLCANO, f"{CONTAINER}.resources", {"nvidia.com/gpu": 1}))

    main = first_pod(edited(spec, gpu_milli=4000))["containers"][0]

    assert main["resources"] == {"limits": {"nvidia.com/gpu": "4"}}


def test_one_container_without_a_list_is_a_list_of_one() -> None:
    """And several without names are named after the role."""
    single = "spec.tasks.0.template.spec.containers"
    parsed = read(changed(VOLCANO, single, {"image": "i"}), form=Format.JSON)
    several = spec_of(changed(VOLCANO, single, [{"image": "i"}, {"image": "j"}]))

    assert parsed.spec is not None
    assert [note.code for note in parsed.notes] == ["containers_not_a_list", "name_assumed"]
    assert [c["name"] for c in first_pod(several)["containers"]] == ["ps", "ps-1"]


@pytest.mark.parametrize(
    ("path", "value", "place", "code"),
    [
        (f"{CONTAINER}.env", [{"value": "x"}], f"{CONTAINER}.env[0].name", "required"),
        (f"{CONTAINER}.env", ["x"], f"{CONTAINER}.env[0]", "wrong_type"),
        (f"{CONTAINER}.command", [["x"]], f"{CONTAINER}.command[0]", "wrong_type"),
        (
            "metadata.labels",
            {"a": ["x"]},
            "metadata.labels.a",
            "wrong_type",
        ),
        (
            "metadata.annotations",
            {"terrace/code": "{"},
            "metadata.annotations.terrace/code",
            "not_json",
        ),
        ("spec.runningEstimate", "soon", "spec.runningEstimate", "not_a_duration"),
        ("spec.plugins", {"svc": "x"}, "spec.plugins.svc", "wrong_type"),
        (
            "spec.tasks.0.template.spec.resources",
            {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}},
            "spec.tasks[0].template.spec.resources",
            "request_above_limit",
        ),
        (
            "spec.tasks.0.topologyPolicy",
            "restricted",
            f"{CONTAINER}.resources.requests.cpu",
            "cpu_not_integer",
        ),
        (
            "spec.networkTopology",
            {"highestTierAllowed": -1},
            "spec.networkTopology.highestTierAllowed",
            "negative_number",
        ),
        (
            "spec.tasks.0.partitionPolicy",
            {"totalPartitions": 1, "partitionSize": 0},
            "spec.tasks[0].partitionPolicy.partitionSize",
            "partition_size_not_positive",
        ),
        (
            "spec.tasks.1.partitionPolicy",
            {"totalPartitions": 3, "partitionSize": 1, "minPartitions": -1},
            "spec.tasks[1].partitionPolicy.minPartitions",
            "negative_number",
        ),
        ("spec.priorityClassName", "High_", "spec.priorityClassName", "invalid_name"),
        ("spec.queue", "Team A", "spec.queue", "invalid_name"),
    ],
)
def test_oddities_of_manifests_are_named(path: str, value: Any, place: str, code: str) -> None:
    """Each at its place in the manifest."""
    parsed = read(changed(VOLCANO, path, value), form=Format.JSON)

    wanted = place.replace("tasks.0", "tasks[0]").replace("containers.0", "containers[0]")
    assert [(one.path, one.code) for one in parsed.problems] == [(wanted, code)]


def test_a_wrong_action_hides_nothing_else_of_its_policies() -> None:
    """The same exit code twice is named beside the two actions that are missing."""
    policies = [{"exitCode": 3}, {"exitCode": 3}]

    parsed = read(changed(VOLCANO, "spec.policies", policies), form=Format.JSON)

    assert {(one.path, one.code) for one in parsed.problems} == {
        ("spec.policies[0].action", "invalid_action"),
        ("spec.policies[1].action", "invalid_action"),
        ("spec.policies", "duplicate_exit_code"),
    }


def test_a_minimum_of_partitions_sizes_the_role() -> None:
    """A stated minimum must be their product."""
    policy = {"totalPartitions": 3, "partitionSize": 1, "minPartitions": 2}
    wrong = changed(VOLCANO, "spec.tasks.1.partitionPolicy", policy)

    parsed = read(changed(wrong, "spec.tasks.1.minAvailable", 3), form=Format.JSON)

    assert [(one.path, one.code) for one in parsed.problems] == [
        ("spec.tasks[1].minAvailable", "task_min_not_partition_product")
    ]


def test_everything_a_job_can_say_survives_the_way_out_and_back() -> None:
    """Also what Volcano has no field for."""
    role = {
        **PLAIN["roles"][1],
        "replicas": 4,
        "min_available": 2,
        "gpu_milli": 250,
        "cpu_milli": 2000,
        "topology_policy": "best-effort",
        "depends_on": {"names": ["ps"], "iteration": "any"},
        "partition_policy": {
            "total_partitions": 2,
            "partition_size": 2,
            "min_partitions": 1,
            "network_topology": {"mode": "soft", "highest_tier_name": "rack"},
        },
        "runtime": "python",
        "tolerations": [{"operator": "Exists"}],
    }
    document = {
        **PLAIN,
        "roles": [PLAIN["roles"][0], role],
        "kind": "notebook",
        "priority": -5,
        "preemptable": False,
        "min_success": 1,
        "network_topology": {"highest_tier_allowed": 2},
        "volumes": [
            {"mount_path": "/a", "claim": {"x": 1}},
            {"mount_path": "/b", "claim_name": "c"},
        ],
        "code": {"source": "archive", "archive_id": "a1"},
        "plugins": {"rendezvous": {"env": {"A": "{job}"}}},
        "namespace": "team",
    }

    spec = spec_of(document)
    back = spec_of(to_manifest(spec))

    assert back.kind is JobKind.NOTEBOOK
    assert back.code == CodeSource(source="archive", archive_id="a1")
    assert back.volumes[1] == VolumeSpec(mount_path="/b", claim_name="c")
    assert back.roles[1].model_copy(update={"template": None}) == spec.roles[1]
    assert back.model_copy(update={"roles": spec.roles}) == spec


def test_host_network_gets_its_dns_policy() -> None:
    """As Volcano fills it in."""
    path = "spec.tasks.0.template.spec.hostNetwork"

    spec = spec_of(changed(VOLCANO, path, value=True))

    assert first_pod(spec)["dnsPolicy"] == "ClusterFirstWithHostNet"


def test_an_mpi_launcher_waits_for_its_workers() -> None:
    """Unless it says what it waits for; the gang then counts the workers only."""
    roles: list[dict[str, Any]] = [
        {"name": "master", "command": ["m"]},
        {"name": "worker", "replicas": 2, "command": ["w"]},
    ]
    waiting = spec_of({"name": "a", "roles": roles, "plugins": ["mpi"]})
    roles[0]["depends_on"] = []
    free = spec_of({"name": "a", "roles": roles, "plugins": ["mpi"]})

    assert waiting.roles[0].depends_on is not None
    assert waiting.roles[0].depends_on.names == ("worker",)
    assert waiting.min_available == 2
    assert isinstance(free.roles[0], RoleSpec)


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("roles.0.command", "a b", ["/bin/sh", "-c", "a b"]),
        ("roles.0.args", "a 'b c'", ["a", "b c"]),
        ("roles.0.env", [{"name": "A", "value": 1}], {"A": "1"}),
        ("roles.0.env", {"A": None, "B": True}, {"A": "", "B": "true"}),
        ("roles.0.ports", "80, 443", [80, 443]),
        ("roles.1.depends_on", "ps", ["ps"]),
        ("plugins", {"env": True}, {"env": {}}),
        ("sla_waiting", "5m", 300.0),
    ],
)
def test_shorthands(path: str, value: Any, expected: Any) -> None:
    """Text where a list or map belongs."""
    dumped: Any = spec_of(changed(PLAIN, path, value)).model_dump(mode="json")
    for part in path.replace("sla_waiting", "sla_waiting_seconds").split("."):
        dumped = dumped[int(part)] if part.isdecimal() else dumped[part]
    if path.endswith("ports"):
        dumped = [port["number"] for port in dumped]
    if path.endswith("depends_on"):
        dumped = dumped["names"]

    assert dumped == expected


@pytest.mark.parametrize(
    ("path", "value", "place", "code"),
    [
        ("roles.0.args", "a 'b", "roles[0].args", "not_arguments"),
        ("policies", "x", "policies", "wrong_type"),
        ("policies", ["x"], "policies[0]", "wrong_type"),
        ("plugins", "x", "plugins", "wrong_type"),
        ("plugins", {"svc": "x"}, "plugins.svc", "wrong_type"),
        ("roles", ["x"], "roles[0]", "wrong_type"),
        ("roles", "x", "roles", "wrong_type"),
        (
            "policies",
            [{"event": "PodFailed", "action": "AbortJob", "timeout": "x"}],
            "policies[0].timeout_seconds",
            "not_a_duration",
        ),
        ("roles.0.resources", {"a.b/c": "x"}, "roles[0].resources.a.b/c", "not_a_quantity"),
        ("priority", 2**40, "priority", "number_too_large"),
        (
            "code",
            {"source": "git", "url": "https://h/x", "revision": "-x"},
            "code.revision",
            "invalid_name",
        ),
        ("code", {"source": "git"}, "code.url", "required"),
        ("roles.0.env", {f"A{n}": "" for n in range(1001)}, "roles[0].env", "too_many"),
        ("roles.0.env", {"A": "x" * 70_000}, "roles[0].env.A", "text_too_long"),
    ],
)
def test_what_is_wrong_in_the_plain_form(path: str, value: Any, place: str, code: str) -> None:
    """Named at its place."""
    parsed = read(changed(PLAIN, path, value), form=Format.JSON)

    assert (place, code) in [(one.path, one.code) for one in parsed.problems]
