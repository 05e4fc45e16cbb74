"""Reports of a session become transitions and feeds, each frame once, only for the node's own."""

from __future__ import annotations

import re
from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from scheduling.domain import reports
from scheduling.domain.errors import StaleSessionError
from scheduling.domain.reports import AttemptObserved, Reported
from scheduling.lifecycle.states import AttemptState
from scheduling.lifecycle.values import AttemptEvent
from scheduling.models import (
    Attempt,
    Device,
    DeviceHold,
    History,
    LogChunk,
    MetricSample,
    Node,
    Usage,
)
from tests.factories.cluster import Site, fresh, role


def test_frame_is_committed_once(site: Site) -> None:
    """A frame that comes again is acknowledged and changes nothing."""
    node = site.node()
    job = site.submit()
    site.cycle()
    (attempt,) = site.live(job)
    seen = AttemptObserved(attempt.id, Reported.RUNNING)
    assert node.report(site.now, seen) == 1
    rows = History.objects.filter(job=job).count()

    again = reports.record(
        node_id=node.id, session_id=node.session_id, seq=1, now=site.now, observations=[seen]
    )

    assert again == 1
    assert History.objects.filter(job=job).count() == rows


def test_start_writes_of_its_task_what_changed(site: Site) -> None:
    """Three columns of eight: its node, number and reason stay as they were read."""
    node = site.node()
    job = site.submit()
    site.cycle()
    (attempt,) = site.live(job)

    with CaptureQueriesContext(connection) as queries:
        node.report(site.now + timedelta(seconds=1), AttemptObserved(attempt.id, Reported.RUNNING))

    told = [query["sql"] for query in queries.captured_queries]
    (update,) = [sql for sql in told if sql.startswith('UPDATE "scheduling_task"')]
    assert re.findall(r'"(\w+)" = v\.', update.partition(" FROM ")[0]) == [
        "state",
        "state_at",
        "version",
    ]


def test_older_session_is_refused(site: Site) -> None:
    """Reports through another session than the node's current one are refused whole."""
    node = site.node()

    with pytest.raises(StaleSessionError):
        reports.record(node_id=node.id, session_id="old", seq=1, now=site.now)


def test_node_speaks_only_of_its_own_attempts(site: Site) -> None:
    """A node's word on another node's attempt, its logs and metrics counts nothing."""
    site.node()
    job = site.submit()
    site.cycle()
    (attempt,) = site.live(job)
    stranger = site.node()

    stranger.report(
        site.now,
        AttemptObserved(attempt.id, Reported.EXITED, exit_code=0),
        logs=[reports.LogReceived(attempt.id, "stdout", 0, b"x")],
        metrics=[reports.MetricReceived(attempt.id, 0, 1.0, {"loss": 1.0})],
        usage=[reports.UsageReceived(str(attempt.id), 1.0, cpu_milli=1)],
    )

    assert Attempt.objects.get(id=attempt.id).state == "Bound"
    assert not LogChunk.objects.exists()
    assert not MetricSample.objects.exists()
    assert not Usage.objects.exists()


def test_unknown_attempt_is_passed_over(site: Site) -> None:
    """An attempt that nobody knows keeps no other report of the frame back."""
    node = site.node()
    job = site.submit()
    site.cycle()
    (attempt,) = site.live(job)

    node.report(
        site.now,
        AttemptObserved(uuid4(), Reported.RUNNING),
        AttemptObserved(attempt.id, Reported.RUNNING),
    )

    assert fresh(job).phase == "Running"


def test_start_and_end_in_one_frame(site: Site) -> None:
    """A task that was quicker than the frame is started and ended, in this order."""
    node = site.node()
    job = site.submit()
    site.cycle()
    (attempt,) = site.live(job)

    node.report(
        site.now,
        AttemptObserved(attempt.id, Reported.STARTING),
        AttemptObserved(attempt.id, Reported.RUNNING, address="10.0.0.1", ports={"http": 8000}),
        AttemptObserved(attempt.id, Reported.EXITED, exit_code=0),
    )

    attempt.refresh_from_db()
    events = History.objects.filter(attempt=attempt).order_by("seq").values_list("event", flat=True)
    assert list(events) == ["bound", "launched", "started", "exited_zero"]
    assert (attempt.state, attempt.exit_code) == ("Succeeded", 0)
    assert (attempt.address, attempt.ports) == ("10.0.0.1", {"http": 8000})
    assert fresh(job).phase == "Completed"


def test_feeds_are_kept_once(site: Site) -> None:
    """Logs, metrics and usage of a frame are rows; a repeated chunk or line is not kept twice."""
    node = site.node(gpus=1)
    job = site.started()
    (attempt,) = site.live(job)
    feeds = {
        "logs": [reports.LogReceived(attempt.id, "stdout", 0, b"hello\n")],
        "metrics": [reports.MetricReceived(attempt.id, 0, 1_700_000_000.0, {"loss": 0.5})],
    }

    node.report(site.now, **feeds, usage=[reports.UsageReceived("node", 1.0, cpu_milli=7)])
    node.report(site.now, **feeds, usage=[reports.UsageReceived("gpu:abc", 2.0, gpu_percent=9.0)])

    assert bytes(LogChunk.objects.get().data or b"") == b"hello\n"
    assert MetricSample.objects.get().values == {"loss": 0.5}
    assert sorted(Usage.objects.values_list("device_uuid", "cpu_milli")) == [("", 7), ("abc", None)]


def test_sick_device_is_noted(site: Site) -> None:
    """A device's health follows what its node says."""
    node = site.node(gpus=1)
    uuid = Device.objects.get().uuid

    node.report(
        site.now, devices=[reports.DeviceObserved(uuid, is_healthy=False, health_reason="ECC")]
    )

    device = Device.objects.get()
    assert (device.is_healthy, device.health_reason) == (False, "ECC")


def test_sick_device_is_not_free(site: Site) -> None:
    """A sick GPU is no room from the next cycle on, and room again once it is healthy."""
    node = site.node(gpus=2)
    sick = Device.objects.order_by("index").first()
    assert sick is not None
    jobs = [site.submit(role(gpu_milli=1000)) for _ in range(2)]

    node.report(site.now, devices=[reports.DeviceObserved(sick.uuid, is_healthy=False)])
    site.cycle()

    assert Node.objects.get().allocatable["nvidia.com/gpu"] == 1000
    live = [site.live(job) for job in jobs]
    assert sorted(len(one) for one in live) == [0, 1]
    assert set(DeviceHold.objects.values_list("device__index", flat=True)) == {1}

    node.report(site.now, devices=[reports.DeviceObserved(sick.uuid, is_healthy=True)])
    site.cycle()

    assert Node.objects.get().allocatable["nvidia.com/gpu"] == 2000
    assert [len(site.live(job)) for job in jobs] == [1, 1]


def test_device_that_falls_sick_under_a_task_is_not_given_again(site: Site) -> None:
    """A GPU that falls sick while it is held keeps its task; the other one is still counted out."""
    node = site.node(gpus=2)
    running = site.started(role(gpu_milli=1000))
    (hold,) = DeviceHold.objects.select_related("device")
    waiting = site.submit(role(gpu_milli=2000))

    node.report(site.now, devices=[reports.DeviceObserved(hold.device.uuid, is_healthy=False)])
    site.cycle()

    assert [len(site.live(running)), len(site.live(waiting))] == [1, 0]
    assert Node.objects.get().allocatable["nvidia.com/gpu"] == 1000


def test_refused_launch_is_tried_again(site: Site) -> None:
    """A launch that an agent will never carry out ends its attempt and the task waits again."""
    node = site.node()
    job = site.submit()
    site.cycle()
    (attempt,) = site.live(job)

    reports.refused(node_id=node.id, attempt_id=attempt.id, code="StaleEpoch", now=site.now)
    site.cycle()

    attempt.refresh_from_db()
    assert (attempt.state, attempt.message) == ("Evicted", "StaleEpoch")
    assert [a.number for a in site.live(job)] == [2]


def test_oom_is_kept_with_the_attempt(site: Site) -> None:
    """What killed a task is known afterwards."""
    site.node()
    job = site.started(role())

    site.exited(*site.live(job), code=137, signal=9, is_oom=True)

    attempt = Attempt.objects.get(job=job)
    assert (attempt.state, attempt.is_oom, attempt.signal) == ("Failed", True, 9)


S, E = AttemptState, AttemptEvent


@pytest.mark.parametrize(
    ("state", "seen", "event"),
    [
        (S.BOUND, {"state": Reported.STARTING}, E.LAUNCHED),
        (S.RUNNING, {"state": Reported.STARTING}, None),
        (S.STARTING, {"state": Reported.RUNNING}, E.STARTED),
        (S.STOPPING, {"state": Reported.RUNNING}, None),
        (S.RUNNING, {"state": Reported.STOPPING}, None),
        (S.RUNNING, {"state": Reported.EXITED, "exit_code": 0}, E.EXITED_ZERO),
        (S.RUNNING, {"state": Reported.EXITED, "exit_code": 3}, E.EXITED_NONZERO),
        (S.RUNNING, {"state": Reported.EXITED, "exit_code": 0, "signal": 9}, E.EXITED_NONZERO),
        (S.STARTING, {"state": Reported.EXITED, "reason": "LaunchFailed"}, E.LAUNCH_FAILED),
        (S.RUNNING, {"state": Reported.EXITED, "reason": "LaunchFailed"}, E.EXITED_NONZERO),
        (S.RUNNING, {"state": Reported.EXITED, "reason": "LeaseLapsed"}, E.GONE),
        (S.STOPPING, {"state": Reported.EXITED, "reason": "NeverStarted"}, E.GONE),
    ],
)
def test_observation_is_an_event(
    state: AttemptState, seen: dict[str, object], event: AttemptEvent | None
) -> None:
    """What a node says of an attempt is one event of the lifecycle, or nothing new."""
    observed = AttemptObserved(UUID(int=1), **seen)  # type: ignore[arg-type]  # as the table says

    assert reports.event_of(observed, state) is event
