"""What a job waited for stays known: when each reason began, and when it ended."""

from __future__ import annotations

from scheduling.domain import apply_plan, jobs
from scheduling.domain.queries.waits import waits_of
from scheduling.engine.types import Plan, Reason
from scheduling.models import Job, PastReason
from tests.factories.cluster import Site, fresh, role

MINUTE = 60.0


def say(site: Site, job: Job, code: str, **params: object) -> None:
    """Let a cycle give a job a reason."""
    apply_plan.apply(
        Plan(job_reasons={str(job.id): Reason(code, params)}),
        cluster_id=site.cluster.id,
        scope=site.scope,
        epoch=site.epoch,
        snapshot=site.cache.refresh(site.cluster.id, site.now),
        now=site.now,
    )


def waited(site: Site, job: Job) -> list[tuple[str, float | None]]:
    """Return code and seconds of each wait, the newest first."""
    return [(one.code, one.seconds) for one in waits_of(site.admin, fresh(job))]


def test_each_reason_stands_until_the_next(site: Site) -> None:
    """Reasons follow one another; the last has no end as long as the job waits."""
    job = site.submit(role(gpu_milli=1000))
    say(site, job, "queue_order", position=3)
    site.later(5 * MINUTE)
    say(site, job, "gang_incomplete", placeable=0)
    site.later(2 * MINUTE)

    assert waited(site, job) == [("gang_incomplete", None), ("queue_order", 5 * MINUTE)]


def test_new_numbers_are_the_same_reason(site: Site) -> None:
    """A position in the line that changes is no new reason; the first numbers are kept."""
    job = site.submit(role(gpu_milli=1000))
    for position in (3, 2, 1):
        say(site, job, "queue_order", position=position)
        site.later(2 * MINUTE)

    (only,) = waits_of(site.admin, fresh(job))
    assert (only.code, only.params["position"]) == ("queue_order", 3)


def test_reasons_that_take_turns_fill_no_table(site: Site) -> None:
    """Of each minute the last reason is kept."""
    job = site.submit(role(gpu_milli=1000))
    site.later(MINUTE - site.now.second)
    for _ in range(10):
        for code in ("queue_order", "gang_incomplete"):
            say(site, job, code)
            site.later(6)

    kept = list(PastReason.objects.filter(job=job).order_by("at").values_list("code", flat=True))
    assert kept == ["gang_incomplete"] * 2


def test_a_start_ends_the_wait_and_a_restart_begins_another(site: Site) -> None:
    """What is said again after the job ran is a wait of its own."""
    job = site.submit(role(gpu_milli=1000))
    site.cycle()
    site.later(10 * MINUTE)
    site.node(gpus=1)
    site.cycle()
    site.running(*site.live(job))
    site.later(MINUTE)
    first = waited(site, job)
    jobs.suspend_job(actor=site.admin, job_id=job.id, now=site.now)
    site.exited(*site.live(job), code=143)
    jobs.resume_job(actor=site.admin, job_id=job.id, now=site.now)
    say(site, job, first[0][0])

    assert [seconds for _, seconds in first] == [10 * MINUTE]
    assert waited(site, job) == [(first[0][0], None), *first]


def test_a_job_that_grew_to_its_size_waits_no_more(site: Site) -> None:
    """An elastic job's wait ends when its last task gets its place, though no phase changes."""
    site.node(gpus=1)
    job = site.started(role(replicas=2, min_available=1, gpu_milli=1000))
    say(site, job, "gang_incomplete")
    site.later(3 * MINUTE)
    assert waited(site, job)[0] == ("gang_incomplete", None)

    site.node(gpus=1)
    site.cycle()

    assert waited(site, job)[0] == ("gang_incomplete", 3 * MINUTE)


def test_older_waits_are_found_by_their_time(site: Site) -> None:
    """A page of older ones knows when its newest ended."""
    job = site.submit(role(gpu_milli=1000))
    for code in ("queue_order", "gang_incomplete", "nodes_unfit"):
        say(site, job, code)
        site.later(2 * MINUTE)

    newest = waits_of(site.admin, fresh(job), limit=1)
    older = waits_of(site.admin, fresh(job), before=newest[-1].since)

    assert [one.code for one in newest] == ["nodes_unfit"]
    assert [(one.code, one.seconds) for one in older] == [
        ("gang_incomplete", 2 * MINUTE),
        ("queue_order", 2 * MINUTE),
    ]
