"""Traces come in as they are published, and a broken row is named."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator

import pytest

from scheduling.engine.types import CPU, GPU, MEMORY, PODS, Queue
from scheduling.simulator import trace
from scheduling.simulator.replay import Arrival

PHILLY = """job_id,user,num_gpu,submit_time,iterations,model_name,duration,interval
7,vc_a,12,100,1,resnet,60.5,8
8,vc_b,0,101,1,resnet,5,8
""".splitlines()

PODS_OF_OPENB = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time
p0,6000,12288,1,460,,100,160
p1,12000,1024,2,1000,V100|P100,200,200
""".splitlines()


def test_philly_jobs_of_more_than_a_server_become_gangs() -> None:
    """12 GPUs are two tasks of 6; a job without GPUs asks for one CPU."""
    large, small = trace.read_philly(PHILLY)

    assert [task.key for task in large.job.tasks] == ["philly-7-0", "philly-7-1"]
    assert large.job.roles[0].request[GPU] == 6000
    assert (large.job.min_available, large.job.queue, large.seconds) == (2, "vc_a", 60.5)
    assert GPU not in small.job.roles[0].request
    assert small.job.roles[0].request[CPU] == 1000


def test_philly_clusters_become_queues_with_their_size_as_min() -> None:
    """Two virtual clusters of 2 and 1 servers are three machines and two queues."""
    nodes, queues = trace.read_philly_clusters(["vc,node num", "a,2", "b,1"])

    assert [node.name for node in nodes] == ["node-0000", "node-0001", "node-0002"]
    assert [(q.name, q.min[GPU], q.weight) for q in queues] == [
        ("vc_a", 16_000, 2),
        ("vc_b", 8000, 1),
    ]
    assert trace.walled(queues)[0] == Queue(
        "vc_a", None, {GPU: 16_000}, {GPU: 16_000}, 2, lend_min=False
    )


def test_openb_pods_keep_their_parts_of_a_gpu_and_their_models() -> None:
    """460 thousandths stay 460; `V100|P100` is a requirement on the node's model."""
    part, whole = trace.read_openb_pods(PODS_OF_OPENB)

    assert part.job.roles[0].request == {CPU: 6000, MEMORY: 12 * 2**30, PODS: 1000, GPU: 460}
    assert part.seconds == 60
    assert whole.job.roles[0].request[GPU] == 2000
    requirement = whole.job.roles[0].node_affinity[0][0]
    assert (requirement.key, requirement.values) == (trace.MODEL_LABEL, ("V100", "P100"))


def test_openb_machines_have_their_gpus_as_devices() -> None:
    """A machine of two GPUs has two devices and its model as a label."""
    (node,) = trace.read_openb_nodes(["sn,cpu_milli,memory_mib,gpu,model", "n1,64000,1024,2,P100"])

    assert [device.id for device in node.devices] == ["n1/0", "n1/1"]
    assert node.labels == {trace.MODEL_LABEL: "P100"}
    assert node.allocatable[GPU] == 2000


HELIOS = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,duration"


def test_helios_jobs_lie_on_as_many_machines_as_the_log_says() -> None:
    """16 GPUs on two machines are two tasks of 8, in the queue of their virtual cluster."""
    lines = [HELIOS, "5,u1,vcA,16,32,2,COMPLETED,2020-04-01 00:10:00,90.0"]

    (only,) = trace.read_helios(lines)

    assert len(only.job.tasks) == 2
    assert only.job.roles[0].request == {CPU: 16_000, PODS: 1000, GPU: 8000}
    assert (only.job.queue, only.job.owner, only.seconds) == ("vcA", "u1", 90)
    assert only.job.created_at == 1585699800


def test_swf_leaves_out_what_never_ran_and_reads_the_rest() -> None:
    """Comments, blank lines and jobs without run time are passed over."""
    lines = [
        "; a comment",
        "",
        "1 50 3 600 16 -1 -1 16 1200 2048 1 7 1 1 2 -1 -1 -1",
        "2 60 3 -1 16 -1 -1 16 1200 2048 0 7 1 1 2 -1 -1 -1",
    ]

    (only,) = trace.read_swf(lines)

    assert (only.job.key, only.job.queue, only.job.owner) == ("swf-1", "queue-2", "user-7")
    assert len(only.job.tasks) == 16
    assert only.job.roles[0].request[MEMORY] == 2048 * 1024
    assert (only.job.created_at, only.seconds) == (50, 600)


def test_a_recorded_day_is_read_back() -> None:
    """One JSON object a line is one job."""
    row = {
        "job": "j1",
        "queue": "vision",
        "owner": "alice",
        "submitted_at": 5,
        "seconds": 7.5,
        "tasks": 2,
        "request": {"cpu": 500},
    }

    (only,) = trace.read_recorded([json.dumps(row), ""])

    assert (only.job.queue, only.job.owner, only.seconds) == ("vision", "alice", 7.5)
    assert len(only.job.tasks) == 2


@pytest.mark.parametrize(
    ("read", "lines", "words"),
    [
        (trace.read_philly, [PHILLY[0], "7,vc_a,x,100,1,r,60,8"], "line 2, num_gpu: 'x'"),
        (trace.read_philly, [PHILLY[0], "7,vc_a,1,-5,1,r,60,8"], "line 2, submit_time"),
        (trace.read_philly, [PHILLY[0], "7,vc_a,1,nan,1,r,60,8"], "line 2, submit_time"),
        (trace.read_openb_pods, ["name,cpu_milli", "p0,5"], "line 2: no column num_gpu"),
        (trace.read_helios, [HELIOS, "5,u,v,1,1,1,C,noon,9"], "line 2, submit_time: 'noon'"),
        (trace.read_swf, ["1 2 3"], "line 1: 3 columns, SWF has 18"),
        (trace.read_swf, [" ".join(["x"] * 18)], "line 1: a column is not a number"),
        (trace.read_recorded, ['{"job": "a"}'], "line 1: queue is missing"),
        (trace.read_recorded, ["[1]"], "line 1: "),
        (trace.read_recorded, ["{"], "line 1: "),
    ],
)
def test_a_row_that_cannot_be_read_is_named(
    read: Callable[[Iterable[str]], Iterator[Arrival]], lines: list[str], words: str
) -> None:
    """The error says the line, the column and the value."""
    with pytest.raises(trace.TraceError) as caught:
        list(read(lines))

    assert str(caught.value).startswith(words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", "queues: a JSON object is expected"),
        ("{", "queues: "),
        ('{"a": {"wait": 1}}', "queues, a: wait is not known"),
        ('{"a": {"parent": "z"}}', "queues, a, parent: there is no queue 'z'"),
        ('{"a": {"min": {"cpu": "x"}}}', "queues, a: "),
    ],
)
def test_a_tree_of_queues_that_cannot_be_read_is_named(text: str, words: str) -> None:
    """The error says the queue and the setting."""
    with pytest.raises(trace.TraceError) as caught:
        list(trace.read_queues(text))

    assert str(caught.value).startswith(words)


def test_a_tree_of_queues_is_read() -> None:
    """Names, parents and numbers arrive as the engine has them."""
    text = '{"dep": {"weight": 2}, "team": {"parent": "dep", "max": {"nvidia.com/gpu": 4000}}}'

    assert list(trace.read_queues(text)) == [
        Queue("dep", weight=2),
        Queue("team", "dep", max={GPU: 4000}),
    ]
