"""Quotas stop what is submitted, stored and started beyond them, at every level and at once."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from uuid import UUID

import pytest
from django.core.files.base import ContentFile
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scheduling.domain import apply_plan, files, jobs, leases, quotas
from scheduling.domain.launches import scheduler_scope
from scheduling.domain.quotas import Subject
from scheduling.engine.types import CPU, GPU, JOBS, Plan
from scheduling.models import (
    Attempt,
    Cluster,
    Hold,
    Job,
    JobFile,
    Quota,
    QuotaLimit,
    QuotaResource,
    QuotaScope,
)
from tenants.domain.access import SYSTEM, Actor, load_actor
from tenants.domain.errors import Conflict, Denied, Invalid, NotFound
from tenants.models import AuditRow, GrantRole, OrgClosure, OrgUnit, User
from tests.factories.cluster import Site, make_site, role, spec
from tests.people import (
    NOW,
    People,
    make_grant,
    make_queue,
    make_queues,
    make_unit,
    make_user,
)

R = QuotaResource


def set_limits(
    unit: OrgUnit, limits: dict[QuotaResource, int], *, user: User | None = None, each: bool = False
) -> Quota:
    """Set a quota as the system does."""
    scope = QuotaScope.USER if user else QuotaScope.EACH_USER if each else QuotaScope.UNIT
    subject = Subject(unit.id, scope, user.id if user else None)
    known = Quota.objects.filter(unit=unit, scope=scope, user=user).first()
    quota = quotas.set_quota(
        actor=SYSTEM,
        subject=subject,
        limits=limits,
        expected_version=known.version if known else 0,
        now=NOW,
    )
    assert quota is not None
    return quota


def unit_of(site: Site) -> OrgUnit:
    assert site.queue.unit is not None
    return site.queue.unit


def apply(site: Site, plan: Plan) -> apply_plan.Applied:
    """Carry out a plan that was made before."""
    assert site.cache.snapshot is not None
    return apply_plan.apply(
        plan,
        cluster_id=site.cluster.id,
        scope=site.scope,
        epoch=site.epoch,
        snapshot=site.cache.snapshot,
        now=site.now,
    )


def researcher(site: Site, name: str) -> Actor:
    """Return somebody who may submit to the site's queue."""
    user = make_user(name)
    make_grant(user, GrantRole.RESEARCHER, unit_of(site))
    return load_actor(user)


def submit(site: Site, actor: Actor, **fields: object) -> Job:
    one = role(**{"replicas": 1, **fields})  # type: ignore[arg-type]
    return jobs.submit_job(actor=actor, spec=spec(one), queue=site.queue, now=site.now)


def refused(act: Callable[[], object]) -> tuple[str, dict[str, object]]:
    """Return code and parameters of the one problem of a refusal."""
    with pytest.raises(Invalid) as refusal:
        act()
    (problem,) = refusal.value.problems
    return problem.code, dict(problem.params)


# --- jobs that wait -------------------------------------------------------------------------------


def test_unit_quota_of_queued_jobs_counts_everybodys(site: Site) -> None:
    """The third job of a unit that lets two wait is refused, whoever submits it."""
    set_limits(unit_of(site), {R.QUEUED_JOBS: 2})
    ann, ben = researcher(site, "ann"), researcher(site, "ben")
    submit(site, ann)
    submit(site, ben)

    code, params = refused(lambda: submit(site, ann))

    assert code == "quota_queued_of_unit"
    assert params == {"unit": unit_of(site).name, "jobs": 2, "most": 2}
    assert Job.objects.count() == 2


def test_quota_of_each_user_counts_the_owners_own(site: Site) -> None:
    """Ann's waiting job leaves Ben's place in line free."""
    set_limits(unit_of(site), {R.QUEUED_JOBS: 1}, each=True)
    ann, ben = researcher(site, "ann"), researcher(site, "ben")
    submit(site, ann)

    submit(site, ben)

    assert refused(lambda: submit(site, ann))[0] == "quota_queued_of_user"


def test_own_quota_replaces_what_each_user_has(site: Site) -> None:
    """A user with a larger quota of their own is not held to the common one."""
    ann = researcher(site, "ann")
    set_limits(unit_of(site), {R.QUEUED_JOBS: 1}, each=True)
    set_limits(unit_of(site), {R.QUEUED_JOBS: 2}, user=User.objects.get(username="ann"))
    submit(site, ann)

    submit(site, ann)

    assert refused(lambda: submit(site, ann))[1]["most"] == 2


def test_suspended_jobs_keep_their_place_in_line(site: Site) -> None:
    """Suspending does not make room to submit more and resume all later."""
    set_limits(unit_of(site), {R.QUEUED_JOBS: 1})
    ann = researcher(site, "ann")
    job = submit(site, ann)
    jobs.suspend_job(actor=ann, job_id=job.id, now=site.now)

    assert refused(lambda: submit(site, ann))[0] == "quota_queued_of_unit"


def test_running_and_ended_jobs_do_not_wait(site: Site) -> None:
    """A job that started leaves the line, and so does one that was cancelled."""
    set_limits(unit_of(site), {R.QUEUED_JOBS: 1})
    ann = researcher(site, "ann")
    site.node()
    submit(site, ann)
    site.cycle()
    waiting = submit(site, ann)
    jobs.cancel_job(actor=ann, job_id=waiting.id, now=site.now)

    assert submit(site, ann).phase == "Pending"


def test_quota_above_stops_jobs_below(people: People) -> None:
    """The department's quota counts its team's jobs."""
    queue = make_queues(people).robots
    set_limits(people.vision, {R.QUEUED_JOBS: 1})
    bob = people.actor(people.bob)
    jobs.submit_job(actor=bob, spec=spec(), queue=queue, now=NOW)

    code, params = refused(lambda: jobs.submit_job(actor=bob, spec=spec(), queue=queue, now=NOW))

    assert (code, params["unit"]) == ("quota_queued_of_unit", "vision")


def test_job_that_is_moved_does_not_stand_in_its_own_way(site: Site) -> None:
    """At the limit, moving a waiting job below the same wall adds nothing to what waits."""
    set_limits(unit_of(site), {R.QUEUED_JOBS: 1})
    ann = researcher(site, "ann")
    job = submit(site, ann)
    assert ann.user_id is not None

    with transaction.atomic():
        quotas.require_room_to_submit(
            unit_id=unit_of(site).id,
            owner_id=ann.user_id,
            spec=jobs.clone_spec(job),
            moved_job=job.id,
        )

    assert refused(lambda: submit(site, ann))[0] == "quota_queued_of_unit"


def test_submission_without_quotas_costs_one_query(site: Site) -> None:
    """Where nothing is limited, one look is all that quotas cost a submission."""
    ann = researcher(site, "ann")
    with CaptureQueriesContext(connection) as queries:
        submit(site, ann)

    touching = [one["sql"] for one in queries if "scheduling_quota" in one["sql"]]
    assert len(touching) == 1


@pytest.mark.django_db(transaction=True)
def test_parallel_submissions_never_pass_the_wall() -> None:
    """Of twelve submissions at once into three places exactly three are accepted."""
    site = make_site()
    set_limits(unit_of(site), {R.QUEUED_JOBS: 3})
    ann = researcher(site, "ann")
    results: list[str] = []
    barrier = threading.Barrier(12)

    def one() -> None:
        barrier.wait()
        try:
            submit(site, ann)
            results.append("accepted")
        except Invalid as refusal:
            results.append(refusal.problems[0].code)
        finally:
            connection.close()

    threads = [threading.Thread(target=one) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(results) == ["accepted"] * 3 + ["quota_queued_of_unit"] * 9
    assert Job.objects.count() == 3


# --- jobs that could never start ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "resource", "requested", "hard"),
    [
        ({R.GPU: 3000}, GPU, 4000, 3000),
        ({R.MEMORY: 1024}, "memory", 4096, 1024),
        ({R.RUNNING_JOBS: 0}, "jobs", 1000, 0),
    ],
)
def test_job_that_no_quota_will_ever_let_start_is_refused(
    site: Site, limits: dict[QuotaResource, int], resource: str, requested: int, hard: int
) -> None:
    """A gang larger than a quota in all would wait for ever, so it is refused with the numbers."""
    set_limits(unit_of(site), limits, each=True)

    code, params = refused(
        lambda: submit(site, researcher(site, "ann"), replicas=4, gpu_milli=1000, memory_bytes=1024)
    )

    assert code == "quota_too_small_of_user"
    assert params == {
        "unit": unit_of(site).name,
        "resource": resource,
        "requested": requested,
        "hard": hard,
    }


# --- what runs ------------------------------------------------------------------------------------


def test_cycle_starts_jobs_up_to_the_quota_and_says_why_the_rest_waits(site: Site) -> None:
    """Two of three jobs of two GPUs start behind a wall of five."""
    set_limits(unit_of(site), {R.GPU: 5000})
    site.node(gpus=8)
    for _ in range(3):
        site.submit(role(replicas=2, gpu_milli=1000))

    applied = site.cycle()

    assert (applied.binds, applied.rejected) == (4, [])
    job = Job.objects.get(tasks_pending=2)
    assert (job.reason_code, job.reason_params) == (
        "quota_of_unit",
        {
            "unit": unit_of(site).name,
            "resource": GPU,
            "requested": 2000,
            "used": 4000,
            "hard": 5000,
        },
    )


def test_raised_quota_starts_what_waited(site: Site) -> None:
    """The next cycle after a change plans by the new limit."""
    set_limits(unit_of(site), {R.RUNNING_JOBS: 1})
    site.node()
    site.submit()
    site.submit()
    site.cycle()

    set_limits(unit_of(site), {R.RUNNING_JOBS: 2})

    assert site.cycle().binds == 1


def test_walls_are_read_again_only_when_something_of_them_has_changed(site: Site) -> None:
    """A cycle without news asks one question for them; a limit and a new queue are news."""
    unit, above = unit_of(site), make_unit("above")
    set_limits(above, {R.GPU: 1000})
    set_limits(unit, {R.RUNNING_JOBS: 1})

    def walls() -> tuple[int, dict[str, tuple[dict[str, int], frozenset[str]]]]:
        with CaptureQueriesContext(connection) as seen:
            found = site.cache.refresh(site.cluster.id, site.now).quotas
        told = {one.name: (dict(one.hard), one.queues or frozenset()) for one in found}
        return len([one for one in seen if "quota" in one["sql"]]), told

    first = walls()
    second = walls()
    set_limits(unit, {R.RUNNING_JOBS: 2})
    raised = walls()
    own = make_queue(site.cluster, "below", site.queue, make_unit("below", unit))
    grown = walls()

    assert second[1] == first[1]
    assert second[0] == 2 < first[0]  # whether there is any, and whether anything is new
    assert raised[1][unit.name][0] == {JOBS: 2000}
    assert grown[1][unit.name][1] == first[1][unit.name][1] | {own.name}
    assert grown[1][above.name] == first[1][above.name]


def test_quota_is_free_again_when_a_job_has_ended(site: Site) -> None:
    """What ended counts no more."""
    set_limits(unit_of(site), {R.RUNNING_JOBS: 1})
    site.node()
    first = site.submit()
    second = site.submit()
    site.cycle()
    (attempt,) = Attempt.objects.all()
    assert site.cycle().binds == 0

    site.exited(attempt)
    site.cycle()

    (other,) = {first.id, second.id} - {attempt.job_id}
    assert Attempt.objects.filter(job=other).count() == 1


@pytest.mark.parametrize("limits", [{R.RUNNING_JOBS: 1}, {R.CPU: 1500}])
def test_plan_older_than_the_quota_is_rejected(
    site: Site, limits: dict[QuotaResource, int]
) -> None:
    """A quota set between planning and applying holds: the second job is left out whole."""
    site.node()
    site.submit()
    site.submit()
    plan = site.plan()
    set_limits(unit_of(site), limits)

    applied = apply(site, plan)

    assert applied.binds == 1
    assert [one.what for one in applied.rejected] == ["quota"]


def test_running_job_grows_behind_its_own_wall(site: Site) -> None:
    """More tasks of a job that runs are no further job when a plan is applied."""
    set_limits(unit_of(site), {R.RUNNING_JOBS: 1})
    site.node(gpus=1)
    job = site.submit(role(replicas=3, gpu_milli=1000, min_available=1), min_available=1)
    site.cycle()
    assert len(site.live(job)) == 1
    site.node(gpus=2)

    assert site.cycle().binds == 2


# --- storage --------------------------------------------------------------------------------------


def test_upload_beyond_the_quota_of_storage_is_refused(
    site: Site,
) -> None:
    """The bytes that do not fit are named, and nothing of them is kept."""
    set_limits(unit_of(site), {R.STORAGE: 10}, each=True)
    ann = researcher(site, "ann")

    def upload(size: int) -> JobFile:
        return files.store_upload(
            actor=ann,
            unit_id=unit_of(site).id,
            path="code.py",
            content=ContentFile(b"x" * size),
            now=NOW,
        )

    upload(8)

    code, params = refused(lambda: upload(3))
    assert code == "quota_storage_of_user"
    assert (params["used"], params["hard"], params["requested"]) == (8, 10, 3)
    upload(2)
    assert JobFile.objects.count() == 2


# --- who sets them --------------------------------------------------------------------------------


def test_units_own_quota_belongs_to_who_administers_its_parent(people: People) -> None:
    """Alice, who administers the tenant, limits its departments, and not the tenant itself."""
    alice = people.actor(people.alice)

    def change(unit: OrgUnit, scope: QuotaScope) -> None:
        quotas.set_quota(
            actor=alice,
            subject=Subject(unit.id, scope),
            limits={R.GPU: 8000},
            expected_version=0,
            now=NOW,
        )

    change(people.vision, QuotaScope.UNIT)
    change(people.lab, QuotaScope.EACH_USER)
    with pytest.raises(Denied):
        change(people.lab, QuotaScope.UNIT)
    with pytest.raises(NotFound):
        change(people.mill, QuotaScope.EACH_USER)


@pytest.mark.parametrize("name", ["bob", "charlie"])
def test_others_set_no_quota(people: People, name: str) -> None:
    """A researcher of the unit is denied; for the other tenant there is no such unit."""
    user = getattr(people, name)

    with pytest.raises(Denied if name == "bob" else NotFound):
        quotas.set_quota(
            actor=people.actor(user),
            subject=Subject(people.vision.id, QuotaScope.EACH_USER),
            limits={R.GPU: 0},
            expected_version=0,
            now=NOW,
        )
    assert not QuotaLimit.objects.exists()


def test_person_of_another_tenant_is_not_named(people: People) -> None:
    """A quota for somebody whom the administrator may not know of names nobody."""
    with pytest.raises(Invalid) as refusal:
        quotas.set_quota(
            actor=people.actor(people.alice),
            subject=Subject(people.vision.id, QuotaScope.USER, people.charlie.id),
            limits={R.GPU: 0},
            expected_version=0,
            now=NOW,
        )
    assert refusal.value.problems[0].code == "user_missing"


def test_change_is_recorded_with_before_and_after(people: People) -> None:
    """Setting and taking away leave one audit row each."""
    quota = set_limits(people.vision, {R.GPU: 8000})
    quotas.set_quota(
        actor=people.actor(people.alice),
        subject=Subject(people.vision.id),
        limits={},
        expected_version=quota.version,
        now=NOW + timedelta(seconds=1),
        reason="project over",
    )

    rows = AuditRow.objects.filter(subject_type="quota").order_by("id")
    assert [(row.action, row.before, row.after, row.reason) for row in rows] == [
        ("quota.set", None, {GPU: 8000}, ""),
        ("quota.remove", {GPU: 8000}, None, "project over"),
    ]
    assert not Quota.objects.exists()


def test_second_writer_is_told_of_the_first(people: People) -> None:
    """A change of a quota that changed meanwhile is refused."""
    set_limits(people.vision, {R.GPU: 8000})

    with pytest.raises(Conflict):
        quotas.set_quota(
            actor=SYSTEM,
            subject=Subject(people.vision.id),
            limits={R.GPU: 1000},
            expected_version=0,
            now=NOW,
        )


# --- any quotas -----------------------------------------------------------------------------------

LIMITS = st.dictionaries(
    st.sampled_from([R.RUNNING_JOBS, R.QUEUED_JOBS, R.CPU, R.GPU]), st.integers(0, 4), max_size=4
)
SCALE = {R.CPU: 1000, R.GPU: 1000}


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_random_quotas_are_never_exceeded(db: None, data: st.DataObject) -> None:
    """Whatever the quotas, submissions, cycles and endings leave every use within its limit."""
    del db
    with transaction.atomic():
        _play(data)
        transaction.set_rollback(True)


def _play(data: st.DataObject) -> None:
    site = make_site()
    tenant = unit_of(site)
    teams = [make_unit(name, tenant) for name in ("east", "west")]
    queues = [make_queue(site.cluster, one.name, site.root, one) for one in teams]
    people = [researcher(site, name) for name in ("ann", "ben")]
    site.node(gpus=6, cpu_milli=8000)
    _draw_quotas(data, tenant, *teams)
    for _ in range(data.draw(st.integers(3, 8))):
        before = {key: used for key, used in all_uses() if key[1] == R.QUEUED_JOBS}
        match data.draw(st.sampled_from(["submit", "submit", "cycle", "end"])):
            case "submit":
                one = role(replicas=data.draw(st.integers(1, 3)), gpu_milli=1000, min_available=1)
                with contextlib.suppress(Invalid):
                    jobs.submit_job(
                        actor=data.draw(st.sampled_from(people)),
                        spec=spec(one, min_available=1),
                        queue=data.draw(st.sampled_from(queues)),
                        now=site.now,
                    )
            case "cycle":
                assert site.cycle().rejected == []
            case "end":
                site.exited(*Attempt.objects.filter(finished_at__isnull=True).order_by("id")[:2])
        for (quota, resource, owner), used in all_uses():
            limit = QuotaLimit.objects.get(quota=quota, resource=resource).amount
            assert used <= max(limit, before.get((quota, resource, owner), 0)), resource


def _draw_quotas(data: st.DataObject, *units: OrgUnit) -> None:
    for unit in units:
        for kind in ("unit", "each", "user"):
            limits = {one: n * SCALE.get(one, 1) for one, n in data.draw(LIMITS).items()}
            if limits:
                user = User.objects.get(username="ann") if kind == "user" else None
                set_limits(unit, limits, user=user, each=kind == "each")


def all_uses() -> Iterator[tuple[tuple[UUID, str, UUID | None], int]]:
    """Count what each limit counts, row by row, for each user where everybody has one."""
    for limit in QuotaLimit.objects.select_related("quota"):
        quota = limit.quota
        owners: list[UUID | None] = [quota.user_id]
        if quota.scope == QuotaScope.EACH_USER:
            own = Quota.objects.filter(unit=quota.unit_id, user__isnull=False)
            exempt = set(own.values_list("user_id", flat=True))
            found = Job.objects.values_list("owner_id", flat=True).distinct()
            owners = [one for one in found if one not in exempt]
        below = set(
            OrgClosure.objects.filter(ancestor=quota.unit_id).values_list("descendant", flat=True)
        )
        for owner in owners:
            used = sum(
                _uses(job, limit.resource)
                for job in Job.objects.filter(unit__in=below)
                if owner in (None, job.owner_id)
            )
            yield (quota.id, limit.resource, owner), used


def _uses(job: Job, resource: str) -> int:
    holds = list(Hold.objects.filter(attempt__job=job, released_at__isnull=True))
    is_over = job.phase in ("Completed", "Failed", "Terminated")
    match resource:
        case R.RUNNING_JOBS:
            return int(bool(holds))
        case R.QUEUED_JOBS:
            return int(not holds and not is_over)
        case R.CPU:
            return sum(hold.cpu_milli for hold in holds)
        case _:
            return sum(hold.gpu_milli for hold in holds)


# --- several clusters -----------------------------------------------------------------------------


def test_wall_is_around_what_runs_in_every_cluster(site: Site) -> None:
    """What a unit holds in one cluster leaves that much less in another: planned and applied."""
    set_limits(unit_of(site), {R.GPU: 3000, R.RUNNING_JOBS: 5})
    set_limits(unit_of(site), {R.GPU: 3000}, each=True)
    Quota.objects.filter(scope="each_user").update(created_at=site.now + timedelta(seconds=1))
    site.node(gpus=2)
    site.submit(role(replicas=2, gpu_milli=1000))
    assert site.cycle().binds == 2
    other = second_cluster(site)
    other.node(gpus=4)
    stale = other.submit(role(replicas=2, gpu_milli=1000))
    small = other.submit(role(replicas=1, gpu_milli=1000))

    (wall, each) = other.cache.refresh(other.cluster.id, other.now).quotas
    applied = other.cycle()

    assert wall.used == {GPU: 2000, CPU: 2000, JOBS: 1000}
    assert each.used_by_owner == {str(site.admin.user_id): dict(wall.used)}
    assert (applied.binds, applied.rejected) == (1, [])
    assert len(other.live(small)) == 1
    assert Job.objects.get(id=stale.id).reason_code == "quota_of_unit"


def test_plan_made_before_the_other_clusters_jobs_started_is_rejected(site: Site) -> None:
    """Two schedulers plan at once into one wall: the second to apply is refused the whole job."""
    set_limits(unit_of(site), {R.GPU: 2000})
    site.node(gpus=2)
    site.submit(role(replicas=2, gpu_milli=1000))
    other = second_cluster(site)
    other.node(gpus=2)
    other.submit(role(replicas=2, gpu_milli=1000))
    first, second = site.plan(), other.plan()

    assert apply(site, first).binds == 2
    applied = apply(other, second)

    assert (applied.binds, [one.what for one in applied.rejected]) == (0, ["quota"])


def second_cluster(site: Site) -> Site:
    """Return another cluster in which the same unit has a queue."""
    cluster = Cluster.objects.create(name="second", created_at=NOW)
    root = make_queue(cluster, "root-of-second")
    queue = make_queue(cluster, "queue-of-second", root, unit_of(site))
    epoch = leases.acquire(scope=scheduler_scope(cluster.id), holder="test", ttl_seconds=600)
    assert epoch is not None
    return Site(site.admin, cluster, root, queue, epoch)
