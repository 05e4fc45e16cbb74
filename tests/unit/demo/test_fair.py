"""The demo's exact division: examples by hand, and the engine's result beside it."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from controlplane.demo.fair import Claim, divide
from scheduling.engine.fairness.water_filling import fill

NUMBERS = st.tuples(
    st.integers(min_value=1, max_value=9),  # weight
    st.integers(min_value=0, max_value=50),  # demand
    st.integers(min_value=0, max_value=20),  # min
)


def test_rest_goes_by_weight_up_to_what_is_wanted() -> None:
    """Who wants little gets it; the others divide the rest by weight."""
    shares = divide(
        12,
        [Claim("a", None, 1, 2), Claim("b", None, 1, 100), Claim("c", None, 2, 100)],
    )

    assert shares == {"a": 2, "b": Fraction(10, 3), "c": Fraction(20, 3)}


def test_inner_queues_want_what_is_below_them_up_to_their_max() -> None:
    """A level divides what the level above gave, and a max of an inner queue holds."""
    shares = divide(
        10,
        [
            Claim("left", None, 3, 0, most=4),
            Claim("right", None, 1, 100),
            Claim("x", "left", 1, 9),
            Claim("y", "left", 3, 9),
        ],
    )

    assert shares == {"left": 4, "right": 6, "x": 1, "y": 3}


def test_mins_come_first_and_are_cut_in_proportion() -> None:
    """Guarantees of more than there is are cut alike."""
    shares = divide(6, [Claim("a", None, 1, 9, least=8), Claim("b", None, 9, 9, least=4)])

    assert shares == {"a": 4, "b": 2}


@given(st.integers(min_value=0, max_value=120), st.lists(NUMBERS, min_size=1, max_size=6))
def test_engine_divides_alike_to_the_rounding(
    total: int, numbers: list[tuple[int, int, int]]
) -> None:
    """Both ways to compute a level differ by less than one unit per queue."""
    claims = [
        Claim(str(place), None, weight, demand, least)
        for place, (weight, demand, least) in enumerate(numbers)
    ]

    exact = divide(total, claims)

    amounts = fill(
        total=total,
        floors=[min(least, demand) for _, demand, least in numbers],
        ceilings=[demand for _, demand, _ in numbers],
        weights=[weight for weight, _, _ in numbers],
    )
    assert sum(exact.values()) == min(total, sum(one.demand for one in claims))
    assert all(
        abs(amount - exact[one.name]) < 1 for one, amount in zip(claims, amounts, strict=True)
    )
