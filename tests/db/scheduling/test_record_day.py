"""A day is written as a trace, and the simulator reads it back."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from scheduling.simulator.trace import read_recorded
from tests.factories.cluster import make_site, role
from tests.people import NOW

pytestmark = pytest.mark.django_db(transaction=True)


def test_what_ended_is_written_and_read_back(tmp_path: Path) -> None:
    """Jobs of the span that ran and ended come back with their tasks, requests and run times."""
    site = make_site()
    site.node()
    ended = site.started(role("ps", 1, cpu_milli=1000), role("worker", 2, cpu_milli=2500))
    site.later(90)
    site.exited(*site.live(ended))
    site.started()
    path = tmp_path / "day.jsonl"
    out = io.StringIO()

    call_command("record_day", path, since="2000-01-01", until="2100-01-01T00:00", stdout=out)

    (only,) = read_recorded(path.read_text().splitlines())
    assert "1 jobs written" in out.getvalue()
    assert (only.job.key, only.job.queue, only.job.owner) == (str(ended.id), "default", "operator")
    assert only.seconds == 90
    assert only.job.created_at == NOW.timestamp()
    assert len(only.job.tasks) == 3
    assert only.job.roles[0].request["cpu"] == 2000
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("since", "until", "words"),
    [
        ("yesterday", "2026-01-01", "--since: 'yesterday' is not a time"),
        ("2026-01-02", "2026-01-01", "--until must be after --since"),
    ],
)
def test_a_span_that_makes_no_sense_is_refused(
    tmp_path: Path, since: str, until: str, words: str
) -> None:
    """Nothing is written, and the option is named."""
    with pytest.raises(CommandError, match=words):
        call_command("record_day", tmp_path / "day.jsonl", since=since, until=until)

    assert list(tmp_path.iterdir()) == []
