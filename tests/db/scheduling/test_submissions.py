"""Many jobs submitted at once, and which changes wake the scheduler."""

from __future__ import annotations

from django.db import connection
from django.test.utils import CaptureQueriesContext

from scheduling.domain import jobs, submissions
from scheduling.domain.reports import AttemptObserved, Reported
from scheduling.models import History, Job, Task
from scheduling.spec.job_spec import JobSpec
from tenants.domain.errors import Conflict, DomainError, Invalid, Problem
from tenants.models import AuditRow
from tests.factories.cluster import Site, role, spec
from tests.people import NOW, People, make_queues

WAKE = "terrace_schedule"


def test_many_keep_their_order_and_their_own_errors(site: Site) -> None:
    """Each item is answered at its place: an unread spec, a taken name and a wrong queue alike."""
    live = site.submit(name="taken")
    unread = Invalid([Problem("name", "missing")])
    specs: list[JobSpec | DomainError] = [
        spec(name="a"),
        unread,
        spec(name="taken"),
        spec(name="a"),
        spec(name="b", queue="no"),
    ]

    results = jobs.submit_many(actor=site.admin, specs=specs, now=site.now)

    first, *refused = results
    assert isinstance(first, Job)
    assert [type(one) for one in refused] == [Invalid, Conflict, Conflict, Invalid]
    assert refused[0] is unread
    assert set(Job.objects.values_list("name", flat=True)) == {live.name, "a"}


def test_many_have_what_one_has(site: Site) -> None:
    """Roles, tasks, history and audit rows are those of jobs that were submitted one by one."""
    wanted = [role("a", 2), role("b", 1)]

    (alone,) = [site.submit(*wanted)]
    results = jobs.submit_many(
        actor=site.admin, specs=[spec(*wanted), spec(*wanted)], now=site.now, request_id="r1"
    )

    def facts(job: Job) -> object:
        fresh = Job.objects.get(id=job.id)
        return (
            (fresh.tasks_total, fresh.tasks_pending, fresh.version, fresh.history_seq),
            list(fresh.roles.order_by("position").values_list("name", "tasks_pending", "request")),
            list(Task.objects.filter(job=job).order_by("id").values_list("role__name", "index")),
            list(History.objects.filter(job=job).values_list("seq", "event", "to_state")),
            AuditRow.objects.filter(action="job.create", subject_id=str(job.id)).count(),
        )

    assert [facts(one) for one in results if isinstance(one, Job)] == [facts(alone)] * 2
    assert AuditRow.objects.filter(request_id="r1").count() == 2


def test_whole_batch_is_all_or_nothing(site: Site) -> None:
    """With one refusal nothing is left of the others, and each is told so."""
    wrong = spec(name="wrong", queue="no-such")

    refused = jobs.submit_many(
        actor=site.admin, specs=[spec(name="good"), wrong], now=site.now, is_whole=True
    )
    accepted = jobs.submit_many(
        actor=site.admin, specs=[spec(name="good")], now=site.now, is_whole=True
    )

    assert [getattr(one, "code", None) for one in refused] == ["batch_not_whole", None]
    assert [type(one) for one in accepted] == [Job]
    assert list(Job.objects.values_list("name", flat=True)) == ["good"]


def test_many_ask_for_rights_and_rows_by_hundreds(site: Site) -> None:
    """Ten times as many jobs need no more statements."""
    counts = []
    for size in (5, 50):
        with CaptureQueriesContext(connection) as queries:
            jobs.submit_many(actor=site.admin, specs=[spec() for _ in range(size)], now=site.now)
        counts.append(len(queries))

    assert counts[0] == counts[1]


def test_many_are_split_by_tasks() -> None:
    """A transaction ends before it has too many tasks; a larger job has one to itself."""
    large = spec(role(replicas=submissions.TASKS_AT_ONCE + 1))
    small = spec(role(replicas=submissions.TASKS_AT_ONCE // 2))

    parts = submissions._parts(list(enumerate([small, small, small, large, small])))

    assert [[index for index, _ in part] for part in parts] == [[0, 1], [2], [3], [4]]


def test_many_need_the_rights_of_one(people: People) -> None:
    """A researcher's batch is refused where a single job is: another queue, a high priority."""
    make_queues(people)
    bob = people.actor(people.bob)
    specs = [
        spec(queue="robots"),
        spec(queue="mill"),
        spec(queue="robots", priority=10),
        spec(queue="robots", priority=11),
    ]

    results = jobs.submit_many(actor=bob, specs=specs, now=NOW)

    assert [isinstance(one, Job) for one in results] == [True, False, False, False]
    assert Job.objects.count() == 1


def test_tasks_that_come_up_wake_nobody(site: Site) -> None:
    """A bind and its reports leave the scheduler asleep; a submission and an end wake it."""
    node = site.node()
    woken: list[str] = []

    def note(what: str, queries: CaptureQueriesContext) -> None:
        if any(WAKE in query["sql"] for query in queries.captured_queries):
            woken.append(what)

    with CaptureQueriesContext(connection) as queries:
        job = site.submit()
    note("submit", queries)
    with CaptureQueriesContext(connection) as queries:
        site.cycle()
    note("bind", queries)
    (attempt,) = site.live(job)
    for state in (Reported.STARTING, Reported.RUNNING):
        with CaptureQueriesContext(connection) as queries:
            node.report(site.now, AttemptObserved(attempt.id, state))
        note(state, queries)
    with CaptureQueriesContext(connection) as queries:
        node.report(site.now, AttemptObserved(attempt.id, Reported.EXITED, exit_code=0))
    note("end", queries)

    assert woken == ["submit", "end"]


def test_role_that_others_wait_for_wakes_the_scheduler(site: Site) -> None:
    """Where a role starts after another, the other's coming up is what a cycle waits for."""
    node = site.node()
    first = role("first")
    second = role("second", depends_on={"names": ["first"]})
    job = site.submit(first, second, min_available=1)
    site.cycle()
    (attempt,) = site.live(job)

    with CaptureQueriesContext(connection) as queries:
        node.report(site.now, AttemptObserved(attempt.id, Reported.RUNNING))

    assert any(WAKE in query["sql"] for query in queries.captured_queries)


def test_gang_is_settled_with_its_binds(site: Site) -> None:
    """A gang that was bound is Running at once: the next cycle has nothing to write of it."""
    site.node()
    job = site.submit(role(replicas=3))
    site.cycle()

    fresh = Job.objects.get(id=job.id)
    assert fresh.gang_phase == "Running"
    assert site.plan().phases == {}
