"""Kubernetes' forms of neighbours, spreading, ports and tiers, as the engine's values."""

from __future__ import annotations

from uuid import UUID

import pytest

from scheduling.domain import placement_rules as rules
from scheduling.engine.types import (
    HyperNode,
    Node,
    NumaNode,
    PodTerm,
    Requirement,
    SpreadRule,
    TopologyMode,
    TopologyRule,
)

LAB = UUID(int=1)
OURS = Requirement(rules.TENANT, "In", (str(LAB),))
SELECTOR = {
    "matchLabels": {"app": "web"},
    "matchExpressions": [{"key": "tier", "operator": "Exists"}],
}
CHOSEN = (OURS, Requirement("app", "In", ("web",)), Requirement("tier", "Exists"))


def test_neighbours_are_looked_for_in_the_own_tenant_only() -> None:
    """Every selector asks for the tenant's label, whatever else it asks for."""
    part = {
        "affinity": {
            "podAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 40,
                        "podAffinityTerm": {"labelSelector": SELECTOR, "topologyKey": "zone"},
                    }
                ]
            },
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "host"}]
            },
        }
    }

    found = rules.neighbour_terms(part, LAB)

    assert found == (
        PodTerm(CHOSEN, "zone", is_anti=False, is_required=False, weight=40),
        PodTerm((OURS,), "host", is_anti=True, is_required=True, weight=0),
    )


def test_wishes_for_nodes_keep_their_weight() -> None:
    """Preferred node affinity is a list of weights and requirements."""
    wish = {
        "weight": 7,
        "preference": {"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["H100"]}]},
    }
    part = {
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [wish]}}
    }

    assert rules.node_wishes(part) == ((7, (Requirement("gpu", "In", ("H100",)),)),)


def test_spreading_and_host_ports_come_from_the_template() -> None:
    """What only the pod template can say counts too."""
    part = {
        "template": {
            "spec": {
                "containers": [
                    {"ports": [{"containerPort": 80, "hostPort": 8080}, {"containerPort": 9}]},
                    {"ports": [{"hostPort": 22}, {"hostPort": 8080}]},
                ],
                "topologySpreadConstraints": [
                    {
                        "maxSkew": 2,
                        "topologyKey": "zone",
                        "whenUnsatisfiable": "ScheduleAnyway",
                        "labelSelector": {"matchLabels": {"app": "web"}},
                    }
                ],
            }
        }
    }

    assert rules.host_ports(part) == (22, 8080)
    assert rules.spread_rules(part, LAB) == (
        SpreadRule(2, "zone", (OURS, Requirement("app", "In", ("web",))), is_required=False),
    )


def test_a_role_without_rules_has_none() -> None:
    """The most common role costs nothing."""
    part: dict[str, object] = {"name": "worker", "affinity": {}, "template": None}

    assert rules.neighbour_terms(part, LAB) == ()
    assert rules.node_wishes(part) == ()
    assert rules.spread_rules(part, LAB) == ()
    assert rules.host_ports(part) == ()
    assert rules.limits_of(part) == {}
    assert rules.topology_rule(None) is None


def test_tasks_carry_their_tenant_and_volcanos_labels() -> None:
    """A user's own label cannot stand in for the tenant's."""
    part = {"name": "ps", "labels": {"app": "web", rules.TENANT: "somebody else"}}

    found = rules.labels_of(part, job_name="train", queue="vision", tenant_id=LAB)

    assert found == {
        "app": "web",
        "volcano.sh/job-name": "train",
        "volcano.sh/task-spec": "ps",
        "volcano.sh/queue-name": "vision",
        rules.TENANT: str(LAB),
    }


def test_a_topology_rule_is_taken_over() -> None:
    """Mode, tier and the tier's name."""
    given = {"mode": "soft", "highest_tier_allowed": 2, "highest_tier_name": None}

    assert rules.topology_rule(given) == TopologyRule(TopologyMode.SOFT, 2, "")


RACK, ZONE = rules.Tier("rack", "net/rack"), rules.Tier("zone", "net/zone")


def test_domains_are_told_apart_by_all_tiers_above_them() -> None:
    """Rack 1 of zone a is another one than rack 1 of zone b; a node without labels is in none."""
    nodes = [
        Node("n1", {}, {"net/rack": "1", "net/zone": "a"}),
        Node("n2", {}, {"net/rack": "1", "net/zone": "a"}),
        Node("n3", {}, {"net/rack": "1", "net/zone": "b"}),
        Node("n4", {}, {"net/zone": "b"}),
        Node("n5", {}, {}),
    ]

    found = rules.network_domains([RACK, ZONE], nodes)

    assert found == (
        HyperNode("rack:a/1", 1, "rack", frozenset({"n1", "n2"})),
        HyperNode("rack:b/1", 1, "rack", frozenset({"n3"})),
        HyperNode("zone:a", 2, "zone", frozenset(), ("rack:a/1",)),
        HyperNode("zone:b", 2, "zone", frozenset({"n4"}), ("rack:b/1",)),
    )


def test_without_tiers_there_are_no_domains() -> None:
    """Labels alone mean nothing."""
    assert rules.network_domains([], [Node("n1", {}, {"net/rack": "1"})]) == ()


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        ([], ()),
        ([{"id": 0, "cpus": "0-7"}], ()),
        (
            [{"id": 0, "cpus": "0-1,4"}, {"id": 1, "cpus": "2-3"}],
            (NumaNode(0, (0, 1, 4)), NumaNode(1, (2, 3))),
        ),
        ([{"id": 0, "cpus": "0-1"}, {"id": 1, "cpus": ""}], ()),
        (
            [{"id": 0, "cpus": "x,1-y"}, {"id": 1, "cpus": "2"}],
            (NumaNode(0, (1,)), NumaNode(1, (2,))),
        ),
    ],
)
def test_numa_nodes_are_read_with_care(
    reported: list[dict[str, object]], expected: tuple[NumaNode, ...]
) -> None:
    """Only where there are several; what is no CPU is passed over."""
    assert rules.numa_nodes(reported) == expected


def test_a_boastful_list_of_cpus_is_cut() -> None:
    """A node that tells of a billion CPUs does not fill the memory."""
    (first, _second) = rules.numa_nodes([{"id": 0, "cpus": "0-999999999"}, {"id": 1, "cpus": "1"}])

    assert len(first.cpus) == rules.MOST_CPUS + 1


@pytest.mark.parametrize(
    ("image", "file"),
    [
        ("nvcr.io/nvidia/pytorch:24.01", "nvidia+pytorch+24.01"),
        ("nvcr.io/nvidia/pytorch:24.01", "nvcr.io+nvidia+pytorch+24.01"),
        ("docker.io/library/python:3.11", "python+3.11"),
        ("python", "library+python+latest"),
        ("registry:5000/team/train", "team+train+latest"),
        ("localhost/own:1", "own+1"),
    ],
)
def test_an_image_is_found_by_the_name_of_its_file(image: str, file: str) -> None:
    """Registry, `library` and a missing tag make no difference."""
    (wanted,) = rules.container_images({"image": image})

    assert rules.cached_images([{"name": "enroot", "images": {file: 7}}]) == {wanted: 7}


def test_other_images_are_not_found() -> None:
    """Another tag or path is another image; a role without one wants none."""
    (wanted,) = rules.container_images({"image": "nvcr.io/nvidia/pytorch:24.01"})
    files = {"nvidia+pytorch+24.02": 1, "pytorch+24.01": 1, "other+pytorch+24.01": 1}

    assert wanted not in rules.cached_images([{"images": files}, {"name": "host"}])
    assert rules.container_images({}) == ()
