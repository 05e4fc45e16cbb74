"""What a part of a page keeps to itself, asked beside the page: guards that pages never need alone.

A page asks first for the thing that it is about, so that its parts are asked by readers who may
read it. A part that relied on that would tell others more wherever else it is drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from django.test import Client

from controlplane.pages.job_logs import Choice, log_tail, merged_context
from scheduling.domain import queue_draining
from scheduling.domain.queries import jobs, lending, queues
from scheduling.domain.queries.notifications import notifications
from scheduling.models import Attempt, Cluster, Job, LogChunk, Node
from tenants.domain.access import MAY_GIVE, Actor, Verb, load_actor
from tenants.models import GrantRole, NotificationChoice
from tests.factories.demo import make_cluster, make_job, make_node, make_queue, run_task
from tests.people import People, make_grant, make_queues, make_user

QUEUES_ONLY = frozenset({Verb.QUEUE_READ.value})


@pytest.fixture
def alice(people: People) -> Actor:
    """Return Alice, who administers the lab, beside a job of Bob's that waits."""
    now = datetime.now(UTC)
    cluster, root = make_cluster("main", now)
    make_node(cluster, "gpu-01", now, gpus=1)
    robots = make_queue(cluster, people.robots, root, "robots", now)
    make_job(robots, people.bob, "bobs-training", now)
    return load_actor(people.alice)


def test_a_reader_of_queues_reads_no_waiting_jobs(alice: Actor) -> None:
    """A token for queues shows the queue and none of the jobs that wait in it."""
    narrow = replace(alice, verbs=QUEUES_ONLY)
    (queue,) = [
        one for one in queues.tree(narrow, Cluster.objects.get().id) if one.name == "robots"
    ]

    told = [
        [job.name for job in lending.waiting_in_order(who, queue, limit=5)]
        for who in (alice, narrow)
    ]

    assert told == [["bobs-training"], []]


def test_my_work_is_ones_own(alice: Actor, people: People) -> None:
    """Who may read a colleague's job does not find it among their own."""
    own = [[job.name for job in jobs.own_jobs(who).live] for who in (alice, load_actor(people.bob))]

    assert own == [[], ["bobs-training"]]


@pytest.mark.parametrize("tail", [log_tail, merged_context])
def test_the_output_of_a_job_is_for_who_may_read_it(
    alice: Actor, people: People, tail: Callable[[Actor, Job, Choice], dict[str, object]]
) -> None:
    """The part of a page with the output is empty for a colleague who may read the job only."""
    job = Job.objects.get()
    task, queue = job.tasks.first(), job.queue
    assert task is not None
    attempt = run_task(task, Node.objects.get(), queue, [], job.created_at)
    LogChunk.objects.create(
        attempt=attempt, stream="stdout", offset=0, size_bytes=6, data=b"hello\n", at=job.created_at
    )
    dora = make_user("dora")
    make_grant(dora, GrantRole.RESEARCHER, people.vision)

    said = ["hello" in str(tail(who, job, Choice())) for who in (alice, load_actor(dora))]

    assert said == [True, False]


def test_evictions_are_told_to_the_owner_while_they_may_read_the_job(
    alice: Actor, people: People
) -> None:
    """Bob hears that his task was evicted; Alice, who reads it too, does not, nor Bob when gone."""
    job = Job.objects.get()
    attempt = run_task(job.tasks.get(index=0), Node.objects.get(), job.queue, [], job.created_at)
    Attempt.objects.filter(id=attempt.id).update(state="Evicted", finished_at=job.created_at)
    bob = load_actor(people.bob)

    told = [
        [one.state for one in notifications(who, NotificationChoice(), now=job.created_at)]
        for who in (bob, alice, replace(bob, grants=()))
    ]

    assert told == [["Evicted"], [], []]


def test_labels_of_a_node_are_for_who_manages(alice: Actor, people: People) -> None:
    """An administrator reads the labels on the page of a node, a researcher does not."""
    del alice
    Node.objects.update(labels={"rack": "zq-rack-7"})

    shown = []
    for user in (people.alice, people.bob):
        client = Client()
        client.force_login(user)
        shown.append("zq-rack-7" in client.get("/cluster/nodes/gpu-01/").content.decode())

    assert shown == [True, False]


def test_what_many_jobs_were_refused_names_nobody_else(alice: Actor, people: People) -> None:
    """A list of ids that one button sends is answered by names to who may read the jobs only."""
    del alice
    waiting = Job.objects.get()

    said = []
    for user in (people.bob, people.charlie):
        client = Client()
        client.force_login(user)
        form = {"action": "resume", "job": [str(waiting.id)]}
        said.append("bobs-training" in client.post("/jobs/bulk/", form, follow=True).text)

    assert said == [True, False]


def test_jobs_move_to_where_one_may_submit(people: People) -> None:
    """Of the open leaves of the tenant those are offered that the actor may submit to."""
    tree = make_queues(people)

    offered = [
        [queue.name for queue in queue_draining.targets(load_actor(user), tree.robots)]
        for user in (people.alice, people.bob)
    ]

    assert offered == [["speech"], []]


def test_only_platform_admins_give_their_own_role() -> None:
    """No other role stands in the table as giving it, whatever else refuses such a grant."""
    givers = [role for role, given in MAY_GIVE.items() if GrantRole.PLATFORM_ADMIN in given]

    assert givers == [GrantRole.PLATFORM_ADMIN]
