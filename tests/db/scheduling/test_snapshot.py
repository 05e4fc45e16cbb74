"""The snapshot says what the rows say, and unchanged things stay the same objects."""

from __future__ import annotations

import pytest

from scheduling.domain import jobs, nodes, snapshot
from scheduling.domain.errors import IncompleteSnapshotError
from scheduling.domain.snapshot_values import STRIKES
from scheduling.engine import types as engine
from scheduling.engine.types import TaskState
from scheduling.models import ImageRule, Job, Node, Task
from scheduling.spec.job_spec import DependsOn
from tests.factories.cluster import Site, role


def named(found: engine.Snapshot, job: Job) -> engine.Job:
    return next(one for one in found.jobs if one.key == str(job.id))


def refresh(site: Site) -> engine.Snapshot:
    return site.cache.refresh(site.cluster.id, site.now)


def test_running_tasks_name_node_and_devices(site: Site) -> None:
    """A running task is on its node with the devices that it holds."""
    node = site.node(gpus=1)
    job = site.started(role(gpu_milli=1000))

    (task,) = named(refresh(site), job).tasks

    assert (task.state, task.node) == (TaskState.RUNNING, node.name)
    assert task.devices == (str(Node.objects.get(id=node.id).devices.get().id),)


def test_unchanged_jobs_stay_the_same_objects(site: Site) -> None:
    """A refresh reads only what changed; all else is the very same object."""
    site.node()
    first, second = site.submit(), site.submit()
    before = refresh(site)

    jobs.suspend_job(actor=site.admin, job_id=second.id, now=site.now)
    after = refresh(site)

    assert named(after, first) is named(before, first)
    assert [job.key for job in after.jobs] == [str(first.id)]


def test_heartbeats_change_nothing(site: Site) -> None:
    """A node that was heard of again is the same object, and so is the tuple of all."""
    node = site.node()
    before = refresh(site)

    nodes.heartbeats(sessions=[(node.id, node.session_id)], now=site.later(3))

    assert refresh(site).nodes is before.nodes


@pytest.mark.django_db(transaction=True)
def test_heartbeats_mark_no_row(site: Site) -> None:
    """What is only heard of need not be read again; what changes, or says so, has to be."""
    node = site.node()
    marked = Node.objects.filter(id=node.id).values_list("changed_xid", flat=True)
    before = marked.get()

    nodes.heartbeats(sessions=[(node.id, node.session_id)], now=site.later(3))
    Node.objects.filter(id=node.id).update(report_seq=7)
    after_heartbeat = marked.get()
    Node.objects.filter(id=node.id).update(allocatable=Node.objects.get(id=node.id).allocatable)
    after_notice = marked.get()
    Node.objects.filter(id=node.id).update(is_cordoned=True, report_seq=8)

    assert after_heartbeat == before
    assert before < after_notice < marked.get()


def test_warm_equals_cold(site: Site) -> None:
    """After any changes the warm snapshot says what a fresh one says."""
    site.node(gpus=2)
    site.started(role(gpu_milli=1000))
    site.submit(role(replicas=3))
    refresh(site)
    site.submit()
    site.cycle()

    warm, cold = refresh(site), snapshot.build(site.cluster.id, site.now)

    by_key = lambda job: job.key  # noqa: E731 -- shorter than a name
    assert sorted(warm.jobs, key=by_key) == sorted(cold.jobs, key=by_key)
    assert warm.nodes == cold.nodes
    assert sorted(warm.queues, key=lambda q: q.name) == sorted(cold.queues, key=lambda q: q.name)


def test_parts_of_a_first_read_make_a_whole(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read a few jobs at once or all together, a cluster is the same."""
    site.node()
    site.started(role(replicas=2))
    for _ in range(4):
        site.submit()
    whole = snapshot.build(site.cluster.id, site.now)

    monkeypatch.setattr(snapshot, "JOBS_AT_ONCE", 2)

    assert set(map(repr, snapshot.build(site.cluster.id, site.now).jobs)) == set(
        map(repr, whole.jobs)
    )


def test_finished_job_that_still_holds_is_seen(site: Site) -> None:
    """Work that is over but not yet ended on its node still takes its place."""
    site.node()
    job = site.started(role(replicas=2), min_success=1)
    first, _ = site.live(job)

    site.exited(first)

    states = [task.state for task in named(refresh(site), job).tasks]
    assert Job.objects.get(id=job.id).phase == "Completed"
    assert states == [TaskState.SUCCEEDED, TaskState.RELEASING]


def test_roles_wait_for_those_they_depend_on(site: Site) -> None:
    """Tasks of a role whose turn has not come are left out, and the gang is as small."""
    site.node()
    job = site.submit(
        role("server"), role("client", 2, depends_on=DependsOn(names=("server",))), min_available=3
    )
    before = named(refresh(site), job)
    site.cycle()
    site.running(*site.live(job))

    after = named(refresh(site), job)

    assert (len(before.tasks), before.min_available) == (1, 1)
    assert (len(after.tasks), after.min_available) == (3, 3)


def test_image_is_served_by_the_first_rule(site: Site) -> None:
    """An image stands for the runtime of its rule; without one no node offers it."""
    job = site.submit(role(image="docker.io/library/python:3.12"))
    alone = named(refresh(site), job).roles[0].image

    for position, (pattern, runtime) in enumerate(
        [("*/tensorflow:*", "tf"), ("docker.io/library/python:*", "host"), ("*", "other")]
    ):
        ImageRule.objects.create(
            cluster=site.cluster, position=position, pattern=pattern, runtime=runtime
        )

    assert alone == "image:docker.io/library/python:3.12"
    assert named(refresh(site), job).roles[0].image == "host"


def test_incomplete_rows_are_refused(site: Site) -> None:
    """A task on a node that is not in the cluster stops the cycle before it plans."""
    site.node()
    site.started()
    Node.objects.update(state="Removed")

    with pytest.raises(IncompleteSnapshotError):
        snapshot.build(site.cluster.id, site.now)


def test_unreadable_job_is_named_and_wants_nothing(site: Site) -> None:
    """A job whose spec is not one is named, so that it can be set aside; the others are read."""
    broken, sound = site.submit(), site.submit()
    Job.objects.filter(id=broken.id).update(spec={"roles": "none"})

    found = refresh(site)

    assert list(site.cache.unreadable) == [broken.id]
    assert (named(found, broken).tasks, named(found, broken).is_runnable) == ((), False)
    assert len(named(found, sound).tasks) == 1


def test_unreadable_job_keeps_what_it_holds(site: Site) -> None:
    """What runs of it stays where it is, in its size, and may not be evicted."""
    site.node()
    job = site.started(role(replicas=2))
    held = named(refresh(site), job)
    spec = Job.objects.get(id=job.id).spec
    Job.objects.filter(id=job.id).update(spec={"roles": "none"})

    now = named(refresh(site), job)

    assert [(one.key, one.node) for one in now.tasks] == [(t.key, t.node) for t in held.tasks]
    assert [one.request for one in now.roles] == [one.request for one in held.roles]
    assert not now.roles[0].preemptable
    Job.objects.filter(id=job.id).update(spec=spec)
    assert named(refresh(site), job) == held
    assert site.cache.unreadable == {}


def test_quarantined_job_is_left_out(site: Site) -> None:
    """After its strikes a waiting job is out of the cycles until somebody acts on it."""
    job = site.submit()
    Job.objects.filter(id=job.id).update(quarantine_strikes=STRIKES)
    assert refresh(site).jobs == ()

    jobs.retry_job(actor=site.admin, job_id=job.id, now=site.now)

    assert [one.key for one in refresh(site).jobs] == [str(job.id)]
    assert Task.objects.get(job=job).state == "Pending"
