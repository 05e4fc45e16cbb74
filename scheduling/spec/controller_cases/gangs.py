"""Cases about gang records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scheduling.spec import gangs, pods
from scheduling.spec.controller_cases.words import UnsupportedCaseError
from scheduling.spec.gangs import GangOwner, GangRecord, GangRole, LoosePod
from scheduling.spec.job_spec import NetworkTopology, PartitionPolicy
from scheduling.spec.quantities import read_thousandths, write_thousandths

Case = Mapping[str, Any]


def answer(case: Case) -> dict[str, Any]:
    """Answer one question about gang records."""
    operations = {
        "ensure": _ensure,
        "min-resources": _min_resources,
        "min-resources-of-job": _min_resources,
        "subgroup-of-task": _subgroup,
        "pod-added": _pod_added,
        "build": _build,
        "correct": _correct,
        "create-or-update": _create_or_update,
        "set-added": _set_added,
        "pod-and-set-updated": _pod_and_set_updated,
    }
    operation = case["when"]["operation"]
    if operation not in operations:
        raise UnsupportedCaseError(f"there is no question {operation!r}")
    return operations[operation](case["given"], case["when"])


def _amounts(amounts: Mapping[str, Any] | None) -> dict[str, int]:
    return {name: read_thousandths(value) or 0 for name, value in (amounts or {}).items()}


def _written(amounts: Mapping[str, int]) -> dict[str, Any]:
    return {
        name: amount if name == gangs.PODS else write_thousandths(amount)
        for name, amount in amounts.items()
    }


def _topology(topology: Mapping[str, Any] | None) -> NetworkTopology | None:
    if not topology:
        return None
    return NetworkTopology(
        mode=topology.get("mode") or "hard",
        highest_tier_allowed=topology.get("highest_tier_allowed"),
        highest_tier_name=topology.get("highest_tier_name"),
    )


def _role(task: Case) -> GangRole:
    partition = task.get("partition")
    policy = partition and PartitionPolicy(
        total_partitions=partition["partitions"],
        partition_size=partition["size"],
        min_partitions=partition.get("min_partitions", 0),
        network_topology=_topology(partition.get("topology")),
    )
    return GangRole(
        task["name"],
        task["replicas"],
        _amounts(task.get("request")),
        task.get("min_available"),
        task.get("priority", 0),
        policy,
    )


def _record(record: GangRecord) -> dict[str, Any]:
    owner, topology = record.owner, record.topology
    return {
        "name": record.name,
        "owner": owner
        and {
            "kind": owner.kind,
            "name": owner.name,
            "uid": owner.uid,
            "controller": owner.is_controller,
        },
        "queue": record.queue,
        "priority_class": record.priority_class,
        "phase": "Pending",
        "min_member": record.min_member,
        "min_task_members": dict(record.min_task_members),
        "min_resources": _written(record.min_resources),
        "labels": dict(record.labels),
        "annotations": dict(record.annotations),
        "topology": topology and topology.model_dump(exclude_none=True),
    }


# --- of jobs ------------------------------------------------------------------------------------


def _ensure(given: Case, when: Case) -> dict[str, Any]:
    del when
    job, existing = given["job"], given.get("existing")
    name = existing["name"] if existing else pods.gang_name(job["name"], job["uid"])
    stated = gangs.GangJob(
        job["name"],
        job["uid"],
        roles=[_role(task) for task in job["tasks"]],
        min_available=job["min_available"],
        queue=job.get("queue") or gangs.DEFAULT_QUEUE,
        priority_class=job.get("priority_class", ""),
    )
    record = gangs.record_of_job(stated, name=name)
    return {"created": existing is None, "gang_record": _record(record), "gang_record_count": 1}


def _min_resources(given: Case, when: Case) -> dict[str, Any]:
    roles = [_role(task) for task in given["tasks"]]
    is_whole = when["operation"] == "min-resources-of-job"
    amounts = gangs.min_resources(roles, given["gang_size"], of_whole_job=is_whole)
    return {"min_resources": _written(amounts)}


def _subgroup(given: Case, when: Case) -> dict[str, Any]:
    del when
    group = gangs.subgroup_of(_role(given["task"]))
    if group is None:
        return {"subgroup": None}
    return {
        "subgroup": {
            "size": group.size,
            "min_subgroups": group.min_subgroups,
            "selects_task": group.role,
            "topology": group.topology and group.topology.model_dump(exclude_none=True),
        }
    }


# --- of pods ------------------------------------------------------------------------------------


def _pod(pod: Case) -> LoosePod:
    owner = pod.get("owner")
    return LoosePod(
        name=pod["name"],
        uid=pod.get("uid", ""),
        owner=GangOwner(owner["kind"], owner["name"], owner["uid"], owner["controller"])
        if owner
        else None,
        priority_class=pod.get("priority_class", ""),
        request=_amounts(pod.get("request")),
        labels=pod.get("labels", {}),
        annotations=pod.get("annotations", {}),
    )


def _owner_annotations(given: Case, pod: LoosePod) -> Mapping[str, str] | None:
    if not given.get("inherit_owner_annotations", True) or pod.owner is None:
        return None
    uid = pod.owner.uid
    found = [owner for owner in given.get("owners", ()) if owner["uid"] == uid]
    return found[0].get("annotations", {}) if found else None


def _of_pod(given: Case, when: Case) -> GangRecord:
    pod = _pod(when["pod"])
    annotations = _owner_annotations(given, pod)
    return gangs.record_of_pod(pod, owner_annotations=annotations, name=when.get("name", ""))


def _pod_added(given: Case, when: Case) -> dict[str, Any]:
    record = _of_pod(given, when)
    return {
        "gang_record": _record(record),
        "pod_group_mark": record.name,
        "created": not given.get("existing_pods"),
        "gang_record_count": 1,
    }


def _build(given: Case, when: Case) -> dict[str, Any]:
    return {"gang_record": _record(_of_pod(given, when))}


def _create_or_update(given: Case, when: Case) -> dict[str, Any]:
    record = _record(_of_pod(given, when))
    existing = given.get("existing")
    differs = bool(existing) and any(
        _same(record.get(key)) != _same(value) for key, value in (existing or {}).items()
    )
    return {
        "gang_record": record,
        "created": existing is None,
        "updated": differs,
        "gang_record_count": 1,
    }


def _same(value: Any) -> Any:
    return _amounts(value) if isinstance(value, Mapping) else value


def _correct(given: Case, when: Case) -> dict[str, Any]:
    record = _record(_of_pod(given, when))
    differs = given.get("existing_differs") or {}
    updated = any(
        record[key] != value
        if not isinstance(value, Mapping)
        else any(record[key].get(name) != text for name, text in value.items())
        for key, value in differs.items()
    )
    return {"updated": updated, "gang_record": record}


# --- of sets ------------------------------------------------------------------------------------


def _members(given: Case) -> list[Case]:
    """The pods of a set that are ours: of our scheduler and of the set's current revision."""
    revision = given["set"].get("current_revision")
    return [
        pod
        for pod in given.get("pods", ())
        if pod["scheduler"] in given.get("scheduler_names", ("volcano",))
        and (revision is None or pod.get("revision") in (None, revision))
        and not pod.get("group_mark")
    ]


def _set_added(given: Case, when: Case) -> dict[str, Any]:
    del when
    members, stated = _members(given), given["set"]
    if not members or not stated["replicas"]:
        return {"created": False, "gang_record_count": 0}
    owner = GangOwner(stated["kind"], stated["name"], stated.get("uid", stated["name"]))
    first = members[0]
    record = gangs.record_of_pod(
        LoosePod(name=first["name"], owner=owner, request=_amounts(first.get("request"))),
        owner_annotations=stated.get("annotations", {}),
    )
    return {"created": True, "gang_record": _record(record), "gang_record_count": 1}


def _pod_and_set_updated(given: Case, when: Case) -> dict[str, Any]:
    """Pod and set report at the same time: both ask for the same record, and one is made."""
    if "set" in given:
        return _set_added(given, when)
    return {**_pod_added(given, when), "created": True}
