"""Amounts and durations as people write them."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.spec import quantities, start_order
from scheduling.spec.schedule_rules import check_schedule


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1", "1"),
        (2.5, "2.5"),
        ("100m", "0.1"),
        ("1k", "1000"),
        ("2Ki", "2048"),
        ("1e3", "1000"),
        ("1E3", "1000"),
        ("3Ei", str(3 * 1024**6)),
        ("5n", "5E-9"),
        ("-1", "-1"),
        (".5", "0.5"),
    ],
)
def test_quantities(text: object, number: str) -> None:
    """Plain, decimal, binary and with an exponent."""
    assert quantities.read_quantity(text) == Decimal(number)


@pytest.mark.parametrize("text", ["", "x", "1x", "1 Gi", True, None, [], "1e400", "9" * 40, "10E"])
def test_what_is_no_quantity(text: object) -> None:
    """Among them what no 64 bits hold."""
    assert quantities.read_quantity(text) is None
    assert quantities.read_units(text) is None
    assert quantities.read_thousandths(text) is None


def test_amounts_are_rounded_up() -> None:
    """As Kubernetes does; thousandths must fit 64 bits too."""
    assert quantities.read_units("1500m") == 2
    assert quantities.read_thousandths("0.0001") == 1
    assert quantities.read_thousandths("9E") is None


@given(st.integers(0, 2**60))
def test_what_is_written_is_read_back(amount: int) -> None:
    """Bytes and thousandths, exactly."""
    assert quantities.read_units(quantities.write_bytes(amount)) == amount
    assert (
        quantities.read_thousandths(quantities.write_thousandths(amount // 1000)) == amount // 1000
    )


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1h2m3s", 3723),
        ("90", 90),
        (1.5, 1.5),
        ("1.5s", 1.5),
        ("-5s", -5),
        ("100ms", 0.1),
        ("0", 0),
        ("soon", None),
        ("", None),
        ("5 m", None),
        (True, None),
        ([], None),
    ],
)
def test_durations(text: object, seconds: float | None) -> None:
    """Go's form, or a number of seconds."""
    assert quantities.read_seconds(text) == pytest.approx(seconds) if seconds else True
    assert (quantities.read_seconds(text) is None) == (seconds is None)


@given(st.integers(0, 10**9) | st.floats(0, 10**6))
def test_durations_are_read_back(seconds: float) -> None:
    """Whatever is written."""
    assert quantities.read_seconds(quantities.write_duration(seconds)) == seconds


def test_the_start_order_names_a_cycle() -> None:
    """Its first name is also its last; unknown names are ignored."""
    fine = start_order.find_order({"c": ["b", "a"], "a": [], "b": ["a", "ghost"]})
    broken = start_order.find_order({"a": ["b"], "b": ["c"], "c": ["b"]})

    assert fine.order == ("a", "b", "c")
    assert broken.cycle == ("b", "c", "b")


def test_a_long_chain_does_not_overflow() -> None:
    """Ten thousand roles in a row."""
    chain = {str(n): [str(n + 1)] for n in range(10_000)}

    assert len(start_order.find_order(chain).order) == 10_000


@pytest.mark.parametrize(
    ("stated", "codes"),
    [
        ({"expression": "*/5 * * * *"}, []),
        ({"expression": ""}, ["required"]),
        ({"expression": "TZ=UTC * * * * *"}, ["zone_in_schedule"]),
        ({"expression": "often"}, ["not_a_schedule"]),
        ({"expression": "@daily", "zone": ""}, ["empty"]),
        ({"expression": "@daily", "zone": "local"}, ["local_zone"]),
        ({"expression": "@daily", "zone": "Europe/Berlin"}, []),
        ({"expression": "@daily", "zone": "New York"}, ["unknown_zone"]),
        ({"expression": "@daily", "zone": "Europe/Nowhere"}, ["invalid_zone"]),
        ({"expression": "@daily", "name": "n" * 53}, ["too_long"]),
        ({"expression": "@daily", "name": "N"}, ["invalid_name"]),
        ({"expression": "@daily", "concurrency": "Maybe"}, ["invalid_choice"]),
        ({"expression": "@daily", "numbers": {"keep": -1}}, ["negative_number"]),
    ],
)
def test_schedule_rules(stated: dict[str, object], codes: list[str]) -> None:
    """Expression, zone, name, concurrency and numbers."""
    assert [one.code for one in check_schedule(**stated)] == codes  # type: ignore[arg-type]  # as stated
