"""What is written for, and read from, clusters: pods, gang records, budgets, resource groups."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from scheduling.spec import gangs, pod_budget, pods, resource_groups
from scheduling.spec.gangs import GangCondition, GangJob, GangOwner, GangRole, LoosePod
from scheduling.spec.job_spec import NetworkTopology, PartitionPolicy

CPU = {"cpu": 1000}


def test_a_pod_carries_its_job_role_index_and_gang() -> None:
    """Under the names that Volcano's scheduler and tools read."""
    job = pods.PodJob(
        "train",
        uid="u1",
        queue="vision",
        version=2,
        priority_class="high",
        annotations={"volcano.sh/preemptable": "true", "other": "x"},
        labels={"volcano.sh/cooldown-time": "60s"},
    )
    role = pods.PodRole(
        "worker", labels={"app": "a"}, topology_policy="restricted", partition_size=2
    )

    marks = pods.mark_pod(job, role, 3)

    assert (marks.name, marks.priority_class) == ("train-worker-3", "high")
    assert marks.labels == {
        "app": "a",
        "volcano.sh/task-index": "3",
        "volcano.sh/job-name": "train",
        "volcano.sh/job-namespace": "default",
        "volcano.sh/task-spec": "worker",
        "volcano.sh/queue-name": "vision",
        "volcano.sh/cooldown-time": "60s",
        "volcano.sh/partition-id": "1",
    }
    assert marks.annotations["scheduling.k8s.io/group-name"] == "train-u1"
    assert marks.annotations["volcano.sh/numa-topology-policy"] == "restricted"
    assert marks.annotations["volcano.sh/preemptable"] == "true"
    assert "other" not in marks.annotations


def test_a_pods_name_shows_the_second_attempt() -> None:
    """The first has none, so that it is the host's name."""
    names = [pods.pod_name("j", "w", 0), pods.pod_name("j", "w", 0, attempt=2)]

    assert names == ["j-w-0", "j-w-0-r2"]


def test_of_two_budgets_the_first_is_copied() -> None:
    """A pod may carry one only."""
    both = {"volcano.sh/jdb-min-available": "1", "volcano.sh/jdb-max-unavailable": "2"}

    assert pods.copied_annotations(both) == {"volcano.sh/jdb-min-available": "1"}


def test_a_forwarded_job_marks_its_pods() -> None:
    """On labels and annotations."""
    marks = pods.mark_pod(pods.PodJob("j", is_forwarded=True), pods.PodRole("w"), 0)

    assert marks.labels["volcano.sh/job-forwarding"] == "true"
    assert marks.annotations["volcano.sh/job-forwarding"] == "true"


def test_quotas_are_charged_by_pod() -> None:
    """Requests under two names, limits and other resources under one."""
    usage = pods.quota_usage([({"cpu": 100, "nvidia.com/gpu": 1000}, {"cpu": 200})], 3)

    assert usage == {
        "pods": 3,
        "count/pods": 3,
        "cpu": 300,
        "requests.cpu": 300,
        "requests.nvidia.com/gpu": 3000,
        "limits.cpu": 600,
    }
    assert pods.missing_indexes(3, {1}) == [0, 2]


def test_a_gang_reserves_minimums_first_and_then_by_priority() -> None:
    """Master 1 of 2, worker 1 of 2 with higher priority, gang of 3: the third is a worker."""
    roles = [
        GangRole("master", 2, {"cpu": 50}, 1),
        GangRole("worker", 2, {"cpu": 100}, 1, priority=2),
    ]

    assert gangs.min_resources(roles, 3) == {"pods": 3, "cpu": 250}
    assert gangs.min_resources(roles, 1, of_whole_job=True) == {"pods": 1, "cpu": 100}
    assert gangs.min_resources(roles, 9) == {"pods": 4, "cpu": 300}


def test_the_record_of_a_job() -> None:
    """Partitions become sub-groups and size the role's minimum."""
    policy = PartitionPolicy(total_partitions=3, partition_size=2, min_partitions=2)
    roles = [GangRole("a", 1, CPU), GangRole("b", 6, CPU, partition_policy=policy)]

    record = gangs.record_of_job(GangJob("j", "u1", roles, 5, queue="q"), name="j-u1")

    assert record.min_task_members == {"a": 1, "b": 4}
    assert record.min_resources == {"pods": 5, "cpu": 5000}
    assert record.subgroups == (gangs.SubGroup("b", 2, 2, None),)
    assert record.owner == GangOwner("Job", "j", "u1")


def test_the_record_of_a_loose_pod_is_sized_by_its_owner() -> None:
    """The owner's marks are inherited, the pod's own win; its budget replaces the owner's."""
    pod = LoosePod(
        "p",
        owner=GangOwner("ReplicaSet", "rs", "u1"),
        request=CPU,
        labels={"volcano.sh/preemptable": "true", "app": "x"},
        annotations={
            "scheduling.volcano.sh/queue-name": "q",
            "volcano.sh/jdb-min-available": "1",
            "volcano.sh/network-topology-mode": "soft",
        },
    )
    owner = {
        "scheduling.volcano.sh/group-min-member": "3",
        "volcano.sh/key": "v",
        "volcano.sh/jdb-max-unavailable": "2",
        "foreign": "x",
    }

    record = gangs.record_of_pod(pod, owner_annotations=owner)

    assert (record.name, record.queue, record.min_member) == ("podgroup-u1", "q", 3)
    assert record.min_resources == {"cpu": 3000}
    assert record.labels == {"volcano.sh/preemptable": "true"}
    assert record.annotations == {"volcano.sh/key": "v", "volcano.sh/jdb-min-available": "1"}
    assert record.topology == NetworkTopology(mode="soft")


def test_a_pod_without_owner_is_its_own() -> None:
    """Its record is named after it."""
    record = gangs.record_of_pod(LoosePod("p", uid="u9"))

    assert (record.name, record.min_member) == ("podgroup-u9", 1)
    assert record.owner == GangOwner("Pod", "p", "u9")


@pytest.mark.parametrize(("text", "minimum"), [("2", 2), ("0", 0), ("x", 1), ("9" * 30, 1)])
def test_a_stated_minimum(text: str, minimum: int) -> None:
    """What is no number counts as one."""
    assert gangs.owner_minimum({gangs.MIN_MEMBER_ANNOTATION: text}) == minimum
    assert gangs.owner_minimum({}) == 1


def test_the_default_queue_gives_way_to_the_namespaces() -> None:
    """One that was named stays."""
    annotations = {gangs.QUEUE_ANNOTATION: "team"}

    assert gangs.queue_in_namespace("default", annotations) == "team"
    assert gangs.queue_in_namespace("mine", annotations) == "mine"
    assert gangs.queue_in_namespace("default", {}) == "default"


def test_the_newest_condition_says_why_a_gang_waits() -> None:
    """Unless it says that the gang is scheduled, or does not hold."""
    early, late = datetime(2025, 1, 1, tzinfo=UTC), datetime(2025, 1, 2, tzinfo=UTC)
    full = GangCondition("Unschedulable", is_true=True, at=late, message="no room")
    fine = GangCondition("Scheduled", is_true=True, at=early, message="")

    assert gangs.waiting_condition([fine, full]) == full
    assert gangs.waiting_condition([replace(fine, at=late), replace(full, at=early)]) is None
    assert gangs.waiting_condition([fine]) is None
    assert gangs.waiting_condition([]) is None


@pytest.mark.parametrize(
    ("annotations", "codes"),
    [
        ({}, []),
        ({pod_budget.MIN_AVAILABLE: "2"}, []),
        ({pod_budget.MAX_UNAVAILABLE: "20%"}, []),
        ({pod_budget.MAX_UNAVAILABLE: "100%"}, ["percentage_out_of_range"]),
        ({pod_budget.MIN_AVAILABLE: "many"}, ["not_a_number"]),
        ({pod_budget.MIN_AVAILABLE: "0"}, ["not_positive"]),
        (
            {pod_budget.MIN_AVAILABLE: "1", pod_budget.MAX_UNAVAILABLE: "1"},
            ["conflicting_annotations"],
        ),
    ],
)
def test_disruption_budgets(annotations: dict[str, str], codes: list[str]) -> None:
    """One of two, a number above zero or 1 to 99 per cent."""
    assert [problem.code for problem in pod_budget.check(annotations)] == codes


def test_resource_groups_are_found_by_namespace_annotation_or_name() -> None:
    """The first that fits, or none."""
    groups = [
        resource_groups.ResourceGroup("a", "s", {"n": "a"}, "namespace", ("ns-a",)),
        resource_groups.ResourceGroup("b", "s", {"n": "b"}, "annotation", ("k: v",)),
        resource_groups.ResourceGroup("c", "s", {"n": "c"}),
    ]

    found = [
        resource_groups.find_group(groups, namespace=namespace, annotations=annotations)
        for namespace, annotations in (
            ("ns-a", {}),
            ("x", {"k": "v"}),
            ("x", {resource_groups.GROUP_ANNOTATION: "c"}),
            ("x", {}),
        )
    ]

    assert [group and group.name for group in found] == ["a", "b", "c", None]
