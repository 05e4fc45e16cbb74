"""What a chart is to the pages: a Plotly figure as data, and its gist in words.

Colours are written `token:<name>` and read from static/css/tokens.css in the browser.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

# A trace or layout is Plotly's own open-ended JSON; its keys are Plotly's.
PlotlyJson = dict[str, Any]

LINES = ("data-4", "state-pending", "state-succeeded", "state-preempted", "state-failed", "data-2")
"""Tokens for several lines in one chart, in order."""


@dataclass(frozen=True, slots=True)
class Chart:
    """A figure with the sentence that sums it up and the rows of its table."""

    title: str
    summary: str
    data: Sequence[PlotlyJson]
    layout: PlotlyJson = field(default_factory=dict)
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()

    @property
    def figure(self) -> PlotlyJson:
        """Return what the browser's Plotly draws."""
        return {"data": list(self.data), "layout": self.layout}
