"""States move by the table only, with history, counters, holds and wake-ups in one transaction."""

from datetime import timedelta

import pytest
from django.db import transaction

from scheduling.domain import delayed_actions, jobs, reports, time_limits
from scheduling.domain.errors import InconsistentJobError
from scheduling.domain.transitions import Batch
from scheduling.lifecycle.events import LifecycleAction, PolicyEvent
from scheduling.models import Attempt, DelayedAction, History, Hold, Job, Task
from scheduling.spec.job_spec import PolicySpec
from tenants.domain.errors import Conflict
from tenants.models import OutboxRow
from tests.factories.cluster import Site, fresh, role


def states(job: Job) -> list[str]:
    return list(Task.objects.filter(job=job).order_by("id").values_list("state", flat=True))


def on(event: PolicyEvent, action: LifecycleAction, timeout: float | None = None) -> PolicySpec:
    return PolicySpec(events=(event,), action=action, timeout_seconds=timeout)


def test_job_completes(site: Site) -> None:
    """A job whose tasks all succeed is Completed, and nothing is held any more."""
    site.node()
    job = site.started(role(replicas=3))

    site.exited(*site.live(job))

    job = fresh(job)
    assert job.phase == "Completed"
    assert (job.tasks_succeeded, job.tasks_running) == (3, 0)
    assert job.finished_at == site.now
    assert not Hold.objects.filter(released_at__isnull=True).exists()


def test_rows_that_contradict_one_another_end_in_an_error(site: Site) -> None:
    """A task that runs by its row and has no attempt cannot be stopped: nothing changes."""
    site.node()
    job = site.started(role(replicas=2))
    lost = site.live(job)[0]
    Attempt.objects.filter(id=lost.id).update(state="Lost", finished_at=site.now)

    with pytest.raises(InconsistentJobError):
        jobs.cancel_job(actor=site.admin, job_id=job.id, now=site.now)

    assert fresh(job).phase == "Running"


def test_history_has_no_gap(site: Site) -> None:
    """History numbers of a job count up by one, whatever happened to it."""
    site.node()
    job = site.started(
        role(replicas=3), policies=(on(PolicyEvent.POD_FAILED, LifecycleAction.RESTART_JOB),)
    )
    site.exited(site.live(job)[0], code=1)

    numbers = list(History.objects.filter(job=job).order_by("seq").values_list("seq", flat=True))

    assert numbers == list(range(1, len(numbers) + 1))
    assert fresh(job).history_seq == len(numbers)


def test_failed_task_restarts_job(site: Site) -> None:
    """RestartJob stops what still runs, begins a new generation and binds new attempts."""
    site.node()
    job = site.started(
        role(replicas=2), policies=(on(PolicyEvent.POD_FAILED, LifecycleAction.RESTART_JOB),)
    )
    first, second = site.live(job)

    site.exited(first, code=1)
    assert fresh(job).phase == "Restarting"
    site.exited(second, code=143)
    site.cycle()
    site.running(*site.live(job))

    job = fresh(job)
    assert (job.phase, job.generation, job.retry_count) == ("Running", 2, 1)
    assert [a.number for a in site.live(job)] == [2, 2]
    assert Attempt.objects.get(id=second.id).state == "Cancelled"


def test_retries_are_used_up(site: Site) -> None:
    """max_retry 2 allows two runs; then the job has Failed and says why."""
    site.node()
    job = site.started(
        max_retry=2, policies=(on(PolicyEvent.POD_FAILED, LifecycleAction.RESTART_JOB),)
    )

    for _ in range(2):
        site.exited(*site.live(job), code=1)
        site.cycle()
        site.running(*site.live(job))

    job = fresh(job)
    assert (job.phase, job.reason_code, job.retry_count) == ("Failed", "retries_used_up", 2)
    assert Attempt.objects.filter(job=job).count() == 2


def test_event_of_an_older_generation_fires_nothing(site: Site) -> None:
    """A task that was stopped for a restart and then reports a failure triggers no policy again."""
    site.node()
    job = site.started(
        role(replicas=2), max_retry=5, policies=(on(PolicyEvent.ANY, LifecycleAction.RESTART_JOB),)
    )
    first, second = site.live(job)

    site.exited(first, code=1)
    site.exited(second, code=1)

    assert fresh(job).retry_count == 1


def test_suspend_and_resume(site: Site) -> None:
    """A suspended job gives its place back; resumed, it runs again and has spent no retry."""
    site.node()
    job = site.started()
    jobs.suspend_job(actor=site.admin, job_id=job.id, now=site.now)
    assert fresh(job).phase == "Aborting"
    site.exited(*site.live(job), code=143)
    assert fresh(job).phase == "Aborted"

    jobs.resume_job(actor=site.admin, job_id=job.id, now=site.now)
    site.cycle()
    site.running(*site.live(job))

    job = fresh(job)
    assert (job.phase, job.retry_count, job.desired_state) == ("Running", 0, "run")


def test_cancel_while_bound_needs_no_node(site: Site) -> None:
    """What was never sent is taken back from the outbox; the job ends at once."""
    site.node()
    job = site.submit(role(replicas=2))
    site.cycle()

    jobs.cancel_job(actor=site.admin, job_id=job.id, now=site.now)

    job = fresh(job)
    assert job.phase == "Terminated"
    assert states(job) == ["Cancelled", "Cancelled"]
    assert not OutboxRow.objects.filter(node__isnull=False).exists()
    assert not Hold.objects.filter(released_at__isnull=True).exists()


def test_cancel_after_claim_sends_a_stop(site: Site) -> None:
    """A launch that a gateway has claimed is not taken back: a stop follows it."""
    node = site.node()
    job = site.submit()
    site.cycle()
    OutboxRow.objects.filter(node=node.id).update(attempts=1)

    jobs.cancel_job(actor=site.admin, job_id=job.id, now=site.now)

    topics = OutboxRow.objects.filter(node=node.id).order_by("id").values_list("topic", flat=True)
    assert list(topics) == ["attempt.launch", "attempt.stop"]
    assert fresh(job).phase == "Terminating"


def test_command_that_changes_nothing_is_refused(site: Site) -> None:
    """A finished job cannot be suspended; the refusal names the phase, and nothing is written."""
    job = site.submit()
    jobs.cancel_job(actor=site.admin, job_id=job.id, now=site.now)
    version = fresh(job).version

    with pytest.raises(Conflict) as caught:
        jobs.suspend_job(actor=site.admin, job_id=job.id, now=site.now)

    assert caught.value.code == "action_ignored"
    assert caught.value.params["phase"] == "Terminated"
    assert fresh(job).version == version


def test_version_is_compared(site: Site) -> None:
    """An action on a version that is not the job's any more is a conflict."""
    job = site.submit()

    with pytest.raises(Conflict) as caught:
        jobs.cancel_job(actor=site.admin, job_id=job.id, now=site.now, expected_version=99)

    assert caught.value.code == "version"
    assert fresh(job).phase == "Pending"


def test_delayed_action_waits_and_is_outlived(site: Site) -> None:
    """A timer on pending tasks is dropped when the task runs, and due only when its time came."""
    site.node()
    job = site.submit(policies=(on(PolicyEvent.POD_PENDING, LifecycleAction.TERMINATE_JOB, 300),))
    row = DelayedAction.objects.get(job=job)
    assert row.due_at == site.now + timedelta(seconds=300)
    assert delayed_actions.due(site.now, limit=9) == []

    site.cycle()
    site.running(*site.live(job))

    row.refresh_from_db()
    assert row.state == "dropped"


def test_delayed_action_is_done_once(site: Site) -> None:
    """A due timer acts on the job, and a second look finds it done."""
    job = site.submit(policies=(on(PolicyEvent.POD_PENDING, LifecycleAction.TERMINATE_JOB, 300),))
    site.later(301)
    (action_id,) = delayed_actions.due(site.now, limit=9)

    with transaction.atomic():
        assert delayed_actions.perform(action_id=action_id, now=site.now)
    with transaction.atomic():
        assert not delayed_actions.perform(action_id=action_id, now=site.now)

    assert fresh(job).phase == "Terminated"


def test_time_limit_ends_the_job(site: Site) -> None:
    """A job that ran for its limit is stopped for that reason."""
    site.node()
    job = site.started(time_limit_seconds=60.0)
    assert time_limits.overdue(site.now, limit=9) == []
    site.later(61)

    assert time_limits.overdue(site.now, limit=9) == [job.id]
    with transaction.atomic():
        time_limits.end_job(job_id=job.id, now=site.now)

    assert fresh(job).phase == "Terminating"
    assert site.live(job)[0].stop_reason == "time_limit"


def test_scale_up_and_down(site: Site) -> None:
    """More replicas are new tasks; fewer stop the highest indexes, and no policy answers."""
    site.node()
    job = site.started(
        role(replicas=2, min_available=1),
        policies=(on(PolicyEvent.POD_EVICTED, LifecycleAction.TERMINATE_JOB),),
    )
    jobs.scale_role(actor=site.admin, job_id=job.id, role="worker", replicas=4, now=site.now)
    site.cycle()
    site.running(*site.live(job)[2:])
    assert fresh(job).tasks_running == 4

    jobs.scale_role(actor=site.admin, job_id=job.id, role="worker", replicas=1, now=site.now)
    stopping = [a for a in site.live(job) if a.state == "Stopping"]
    site.exited(*stopping, code=143)

    job = fresh(job)
    assert (job.phase, job.tasks_running, job.tasks_total) == ("Running", 1, 1)
    assert [a.stop_reason for a in stopping] == ["scale_down"] * 3
    assert states(job) == ["Running", "Cancelled", "Cancelled", "Cancelled"]


def test_lost_attempt_is_tried_again_and_its_late_result_is_not_used(site: Site) -> None:
    """The end of an attempt that was given up is written down and changes nothing."""
    node = site.node()
    job = site.started()
    (attempt,) = site.live(job)
    Attempt.objects.filter(id=attempt.id).update(state="Lost", finished_at=site.now)
    Task.objects.filter(job=job).update(state="Pending")

    node.report(site.now, reports.AttemptObserved(attempt.id, reports.Reported.EXITED, exit_code=0))

    late = History.objects.filter(job=job).latest("seq")
    assert (late.reason_code, late.from_state, late.to_state) == ("late_report", "Lost", "Lost")
    assert states(job) == ["Pending"]


def test_transitions_need_a_transaction(transactional_db: None) -> None:
    """A batch outside a transaction is refused before anything is written."""
    del transactional_db
    with pytest.raises(transaction.TransactionManagementError):
        Batch(now=None)  # type: ignore[arg-type]  # it does not come so far
