"""Bullets measure used against deserved, and claim nothing where there is no bound."""

from controlplane.charts.bullets import bullet, bullets

GPU = "nvidia.com/gpu"


def test_bullet_within_its_share() -> None:
    """Used below deserved: nothing is borrowed, lengths are parts of the max."""
    bar = bullet(GPU, minimum=2000, deserved=6000, allocated=4000, maximum=8000)

    assert (bar.used_percent, bar.deserved_percent, bar.over_percent) == ("50", "75", "0")
    assert (bar.min_percent, bar.has_min) == ("25", True)
    assert bar.summary == "4 GPU used, deserves 6, min 2, max 8"


def test_bullet_that_borrows() -> None:
    """What is held above deserved is drawn apart and said."""
    bar = bullet(GPU, minimum=0, deserved=2000, allocated=5000, maximum=None)

    assert (bar.used_percent, bar.over_percent) == ("40", "60")
    assert bar.summary == "5 GPU used, deserves 2, borrows 3"


def test_bullet_without_a_bound() -> None:
    """A resource for which the scheduler sets no share is not said to be borrowed."""
    bar = bullet("cpu", minimum=0, deserved=None, allocated=3000, maximum=None)

    assert bar.over_percent == "0"
    assert bar.summary == "3 CPU used"


def test_resources_without_any_amount_are_left_out() -> None:
    """Only what a queue has to do with gets a bar."""
    found = bullets(
        minimum={}, deserved={GPU: 1000}, allocated={}, maximum={}, capacity={"cpu": 4000}
    )

    assert [bar.resource for bar in found] == [GPU, "cpu"]
