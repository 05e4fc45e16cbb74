"""Lines, timelines and metric charts say in words what they draw."""

from controlplane.charts.lines import line_chart
from controlplane.charts.metrics import charts
from scheduling.domain.queries.jobs import Series, thinned


def test_line_chart_sums_up_and_lists_its_points() -> None:
    """The summary names last and range; the table has the newest first, a gap stays empty."""
    found = line_chart(
        "loss",
        [Series("a", ((1, 3.0), (2, 1.0))), Series("b", ((2, 2.0),))],
        x_title="step",
        write=lambda value: f"{value:g}",
    )

    assert found.summary == "a: last 1, between 1 and 3. b: last 2, between 2 and 2."
    assert found.columns == ("step", "a", "b")
    assert found.rows == [["2", "1", "2"], ["1", "3", ""]]


def test_metrics_are_one_chart_each() -> None:
    """The same metric of several tasks is one chart with a line for each task."""
    series = [
        Series("loss · worker-0", ((1, 1.0),)),
        Series("loss · worker-1", ((1, 2.0),)),
        Series("accuracy", ((1, 0.5),)),
    ]

    found = charts(series)

    assert [(chart.title, [line["name"] for line in chart.data]) for chart in found] == [
        ("loss", ["worker-0", "worker-1"]),
        ("accuracy", ["accuracy"]),
    ]


def test_thinned_keeps_the_last_point() -> None:
    """Of many points some are kept, the first and the last among them."""
    points = tuple((float(n), float(n)) for n in range(1001))

    kept = thinned(points, most=10)

    assert kept[0] == (0.0, 0.0)
    assert kept[-1] == (1000.0, 1000.0)
    assert len(kept) <= 12
