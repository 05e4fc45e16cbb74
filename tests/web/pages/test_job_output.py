"""The output of all tasks in one view; what was asked beside what was used; attempts compared."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from scheduling.domain import logs
from scheduling.domain.queries.efficiency import GPU, efficiency, suggest
from scheduling.models import Attempt, LogChunk, Usage
from tenants.models import User
from tests.factories.demo import run_task
from tests.web.pages.conftest import Site

Browse = Callable[[User], Client]
GIB = 1024**3
MIB = 1024**2


def _run(site: Site) -> list[Attempt]:
    """Let both tasks of Bob's job run."""
    return [
        run_task(task, site.node, site.robots, [site.node.devices.get(index=number)], site.now)
        for number, task in enumerate(site.bobs.tasks.order_by("index"))
    ]


def _write(site: Site, attempt: Attempt, text: str, *, offset: int = 0) -> None:
    data = text.encode()
    LogChunk.objects.create(
        attempt=attempt,
        stream="stdout",
        offset=offset,
        size_bytes=len(data),
        data=data,
        at=site.now,
    )


def _measure(site: Site, attempt: Attempt, count: int, **used: float) -> None:
    Usage.objects.bulk_create(
        Usage(node=site.node, attempt=attempt, at=site.now - timedelta(seconds=5 * number), **used)
        for number in range(count)
    )


def test_output_of_all_tasks_stands_in_one_view(site: Site, browse: Browse) -> None:
    """Each line begins with its task, and each task's feed goes on where its part ends."""
    first, second = _run(site)
    _write(site, first, "one\ntwo\n")
    _write(site, second, "three\n")

    page = browse(site.people.bob).get(f"/jobs/{site.bobs.id}/logs/?attempt=all")

    text = page.content.decode()
    assert "worker-0 │ one\nworker-0 │ two\nworker-1 │ three\n" in text
    assert f'data-live-arg="{first.id}:stdout" data-live-cursor="8"' in text
    assert f'data-live-arg="{second.id}:stdout" data-live-cursor="6"' in text


def test_text_is_found_in_all_tasks(site: Site, browse: Browse) -> None:
    """A search over all tasks tells task and line of each place, whatever the case."""
    first, second = _run(site)
    _write(site, first, "fine\nAn ERROR here\n")
    _write(site, second, "error there\n")

    page = browse(site.people.bob).get(f"/jobs/{site.bobs.id}/logs/?attempt=all&find=error")

    found = [(name, hit.number, hit.line) for name, hit in page.context["matches"]]
    assert found == [("worker-0", 2, "An ERROR here"), ("worker-1", 1, "error there")]


def test_one_view_costs_the_same_for_more_tasks(site: Site, browse: Browse) -> None:
    """Reading the ends of two streams costs as many queries as of one."""
    first, second = _run(site)
    _write(site, first, "one\n")
    client = browse(site.people.bob)
    path = f"/jobs/{site.bobs.id}/logs/?attempt=all"
    client.get(path)
    counts = []

    for attempt in (None, second):
        if attempt is not None:
            _write(site, attempt, "two\n")
        with CaptureQueriesContext(connection) as queries:
            client.get(path)
        counts.append(len(queries))

    assert counts[0] == counts[1]
    assert counts[0] <= 15


def test_end_of_a_stream_is_whole(site: Site) -> None:
    """The end is cut to its length, begins behind a gap, and is told to go on or not."""
    first, second = _run(site)
    _write(site, first, "lost")
    _write(site, first, "0123", offset=10)
    _write(site, first, "4567", offset=14)
    Attempt.objects.filter(id=second.id).update(state="Succeeded")
    second.refresh_from_db()
    _write(site, second, "abcdef")

    found = logs.tails(attempts=[first, second], stream="stdout", length=6)
    whole = logs.tails(attempts=[first], stream="stdout", length=100)

    assert found == {
        first.id: logs.LogPart(b"234567", 12, 18, is_final=False),
        second.id: logs.LogPart(b"abcdef", 0, 6, is_final=True),
    }
    assert whole[first.id] == logs.LogPart(b"01234567", 10, 18, is_final=False)


def test_logs_of_all_tasks_need_the_right_to_read_them(site: Site, browse: Browse) -> None:
    """The view of all is 404 for a stranger, like that of one."""
    _run(site)

    reply = browse(site.people.charlie).get(f"/jobs/{site.bobs.id}/logs/?attempt=all")

    assert reply.status_code == 404


def test_asked_and_used_are_told_by_role(site: Site, browse: Browse) -> None:
    """The most and the mean of what was measured stand beside what was asked, with a suggestion."""
    first, second = _run(site)
    _measure(site, first, 6, cpu_milli=500, memory_bytes=GIB, gpu_percent=90)
    _measure(site, second, 6, cpu_milli=1000, memory_bytes=2 * GIB, gpu_percent=80)

    found = {one.resource: (one.peak, one.mean, one.suggested) for one in efficiency(site.bobs)}
    page = browse(site.people.bob).get(f"/jobs/{site.bobs.id}/metrics/").content.decode()
    clone = browse(site.people.bob).get(f"/jobs/{site.bobs.id}/clone/?suggested=yes")

    assert found == {
        "cpu": (1000, 750, 1200),
        "memory": (2 * GIB, 3 * GIB // 2, 2560 * MIB),
        GPU: (900, 850, None),
    }
    assert "<strong>1.2</strong>" in page
    values = clone.context["form"].roles[0].values
    assert (values["cpu"], values["memory"], values["gpu"]) == ("1200m", "2560Mi", "1")


def test_short_run_suggests_nothing(site: Site) -> None:
    """Less than a minute of samples is shown and nothing is concluded; unmeasured is left out."""
    first, _second = _run(site)
    _measure(site, first, 11, cpu_milli=500)

    found = [(one.resource, one.peak, one.suggested) for one in efficiency(site.bobs)]

    assert found == [("cpu", 500, None)]


@pytest.mark.parametrize(
    ("resource", "asked", "needed", "enough"),
    [
        ("cpu", 4000, 1000, 1200),
        ("cpu", 4000, 2800, None),
        ("cpu", 4000, 10, 100),
        ("memory", 8 * GIB, 1 * GIB, 1280 * MIB),
        ("memory", 8 * GIB, 7.5 * GIB, 9600 * MIB),
        ("memory", 8 * GIB, 7 * GIB, None),
        (GPU, 8000, 2000, 3000),
        (GPU, 8000, 7000, None),
        (GPU, 1000, 100, None),
        (GPU, 4000, 0, None),
    ],
)
def test_suggestion_has_a_margin_and_a_step(
    resource: str, asked: int, needed: float, enough: int | None
) -> None:
    """What was used with a margin, in steps; nothing where what was asked is about right."""
    assert suggest(resource, asked, needed) == enough


def test_attempts_of_a_task_are_compared(site: Site, browse: Browse) -> None:
    """Each attempt stands with how long it ran and the most it used; unmeasured is a dash."""
    first, _second = _run(site)
    _measure(site, first, 2, cpu_milli=1500, memory_bytes=GIB)

    page = browse(site.people.bob).get(f"/jobs/{site.bobs.id}/tasks/worker/0/").content.decode()

    assert 'data-label="CPU at most">1.5<' in page
    assert 'data-label="Memory at most">1 GiB<' in page
    assert 'data-label="GPU at most">–<' in page  # noqa: RUF001 -- a dash, typeset
    assert 'data-label="Ran">11 min' in page


def test_unmeasured_attempt_is_told_with_dashes(site: Site, browse: Browse) -> None:
    """An attempt of which nothing was measured has dashes, never zeros."""
    _run(site)

    page = browse(site.people.bob).get(f"/jobs/{site.bobs.id}/tasks/worker/1/").content.decode()

    for label in ("CPU at most", "Memory at most", "GPU at most"):
        assert f'data-label="{label}">–<' in page  # noqa: RUF001 -- a dash, typeset
