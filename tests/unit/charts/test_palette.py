"""The state colours stay apart under colour blindness and readable on both grounds."""

import itertools
import math
import re
from pathlib import Path

import pytest

from controlplane.charts.states import ATTEMPTS, PHASES, TOKENS, phase_token

TOKENS_CSS = Path(__file__).resolve().parents[3] / "static" / "css" / "tokens.css"
STATES = ("queued", "pending", "running", "succeeded", "failed", "preempted", "held")
GROUNDS = {"light": "#FFFFFF", "dark": "#0D1117"}
LEAST_CONTRAST = {"light": 3.1, "dark": 4.5}
LEAST_DISTANCE = {"light": 25.0, "dark": 24.5}
EXPECTED = {
    "light": ("#8792A1", "#E86F23", "#01618E", "#17A46B", "#A31C04", "#B155E7", "#42464F"),
    "dark": ("#6B7E8E", "#C77812", "#5290FC", "#61E1A1", "#F1565D", "#CC9CE0", "#D9DDE8"),
}
# Machado, Oliveira, Fernandes (2009), severity 1.
VISION = {
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "deutan": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "protan": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "tritan": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
LUMINANCE = (0.2126, 0.7152, 0.0722)
Triple = tuple[float, float, float]


def _colours() -> dict[str, dict[str, str]]:
    """Read the state tokens from the style sheet: theme -> state -> colour."""
    text = TOKENS_CSS.read_text(encoding="utf-8")
    pattern = r"--state-(\w+): light-dark\((#\w{6}), (#\w{6})\);"
    found = {state: (light, dark) for state, light, dark in re.findall(pattern, text)}
    return {
        theme: {state: found[state][at] for state in STATES} for at, theme in enumerate(GROUNDS)
    }


def _linear(colour: str) -> Triple:
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return _lin(red), _lin(green), _lin(blue)


def _lin(value: float) -> float:
    return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4


def _contrast(one: str, other: str) -> float:
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    return sum(weight * part for weight, part in zip(LUMINANCE, _linear(colour), strict=True))


def _seen(colour: str, vision: str) -> Triple:
    """Return CIELAB as somebody with this vision sees it."""
    linear = _linear(colour)
    red, green, blue = (
        min(1.0, max(0.0, sum(a * b for a, b in zip(row, linear, strict=True))))
        for row in VISION[vision]
    )
    x = _bend((0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.95047)
    y = _bend(0.2126 * red + 0.7152 * green + 0.0722 * blue)
    z = _bend((0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.08883)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def _bend(value: float) -> float:
    return value ** (1 / 3) if value > 0.008856 else 7.787 * value + 16 / 116


@pytest.mark.parametrize("theme", GROUNDS)
def test_state_colours_are_those_that_were_searched(theme: str) -> None:
    """The tokens are the searched colours, whatever the case of their digits."""
    assert tuple(one.upper() for one in _colours()[theme].values()) == EXPECTED[theme]


@pytest.mark.parametrize("theme", GROUNDS)
def test_state_colours_are_readable(theme: str) -> None:
    """Each state colour has the least contrast with its ground."""
    contrasts = [_contrast(colour, GROUNDS[theme]) for colour in _colours()[theme].values()]

    assert round(min(contrasts), 1) >= LEAST_CONTRAST[theme]


@pytest.mark.parametrize("theme", GROUNDS)
@pytest.mark.parametrize("vision", VISION)
def test_state_colours_stay_apart(theme: str, vision: str) -> None:
    """Any two state colours keep their distance under each kind of vision."""
    seen = [_seen(colour, vision) for colour in _colours()[theme].values()]
    distances = [math.dist(one, other) for one, other in itertools.combinations(seen, 2)]

    assert round(min(distances), 1) >= LEAST_DISTANCE[theme]


def test_every_state_has_a_token() -> None:
    """Each phase and attempt state shows as a token that has a glyph and a colour."""
    icons = (TOKENS_CSS.parents[2] / "templates" / "_icons.html").read_text(encoding="utf-8")
    used = {*PHASES.values(), *ATTEMPTS.values(), phase_token("Pending", "Inqueue")}

    assert used <= set(TOKENS)
    assert [token for token in TOKENS if f'id="icon-state-{token}"' not in icons] == []
