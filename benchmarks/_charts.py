"""Draw the charts of docs/benchmarks.md: `python -m benchmarks._charts [FIGURES] [FOLDER]`.

FIGURES (docs/charts/figures.jsonl) holds lines that the benchmarks have printed; FOLDER
(docs/charts) gets one SVG a chart. They follow the reader's light or dark mode and carry their
numbers as text, so that nothing depends on colour alone.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

WIDTH, LABEL, VALUE, BAR, GAP, TOP = 720, 210, 110, 16, 12, 58
STYLE = """
text{font:13px system-ui,sans-serif;fill:#1b1f24}.t{font-size:15px;font-weight:600}
.own{fill:#01618E}.peer{fill:#8792A1}.most{fill:#42464F}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.own{fill:#5290FC}.peer{fill:#6B7E8E}
.most{fill:#D9DDE8}}
"""

Row = Mapping[str, Any]  # a line of a benchmark: numbers, texts and objects


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar; `kind` is own, peer or most (the most that is possible)."""

    kind: str
    value: float
    words: str


@dataclass(frozen=True, slots=True)
class Chart:
    """Groups of bars under labels, on a linear or logarithmic scale."""

    name: str
    title: str
    legend: Mapping[str, str]
    groups: Sequence[tuple[str, Sequence[Bar]]]
    start: float = 0.0
    is_log: bool = False


def draw(chart: Chart) -> str:
    """Return a chart as SVG."""
    values = [bar.value for _, bars in chart.groups for bar in bars]
    low = min(values) / 2 if chart.is_log else chart.start
    high = max(values)

    def length(value: float) -> float:
        share = (
            math.log(value / low) / math.log(high / low)
            if chart.is_log
            else (value - low) / (high - low)
        )
        return max(share, 0.0) * (WIDTH - LABEL - VALUE)

    parts = [f'<text class="t" x="0" y="18">{escape(chart.title)}</text>']
    x = 0
    for kind, words in chart.legend.items():
        parts += [
            f'<rect class="{kind}" x="{x}" y="29" width="12" height="12"/>',
            f'<text x="{x + 18}" y="40">{escape(words)}</text>',
        ]
        x += 40 + 7 * len(words)
    y = TOP
    for label, bars in chart.groups:
        middle = y + len(bars) * BAR / 2 + 4
        parts.append(f'<text x="0" y="{middle:.0f}">{escape(label)}</text>')
        for bar in bars:
            wide = length(bar.value)
            parts += [
                (
                    f'<rect class="{bar.kind}" x="{LABEL}" y="{y + 1}" width="{wide:.1f}" '
                    f'height="{BAR - 3}"/>'
                ),
                f'<text x="{LABEL + wide + 6:.1f}" y="{y + 12}">{escape(bar.words)}</text>',
            ]
            y += BAR
        y += GAP
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" role="img" '
        f'aria-label="{escape(chart.title, quote=True)}">\n<style>{STYLE}</style>\n{body}\n</svg>\n'
    )


def charts(rows: Sequence[Row]) -> Iterator[Chart]:
    """Yield the charts for which there are figures."""
    packing = [
        (row["benchmark"].removeprefix("openb ").split(": ")[0], _packed(row))
        for row in rows
        if row["benchmark"].startswith("openb ")
    ]
    if packing:
        legend = {"own": "Terrace", "peer": "FGD, published", "most": "future known"}
        title = "GPUs allocated on openb at 130 % demand, % (axis from 90)"
        yield Chart("openb", title, legend, packing, start=90.0)
    reclaim = [
        (row["benchmark"].split(", ")[1], _timed(row, "ms"))
        for row in rows
        if row["benchmark"].startswith("KAI's reclaim")
    ]
    if reclaim:
        legend = {"own": "Terrace, CPU", "peer": "KAI, published"}
        title = "Reclaim for a large gang, ms (logarithmic; no figure of KAI's at 1,000 nodes)"
        yield Chart("reclaim", title, legend, reclaim, is_log=True)
    philly = [
        (name, [Bar("own" if name.startswith("Terrace") else "peer", row["value"], _seconds(row))])
        for row in rows
        if (name := _order_of(row["benchmark"]))
    ]
    if philly:
        legend = {"own": "Terrace, knows no run times", "peer": "orders of the literature"}
        yield Chart("philly", "Philly: mean completion time (95 of 100 by), s", legend, philly)
    growth = [
        (
            f"{int(size):,} {row['benchmark'].split(' with ')[1].split(',')[0]}",
            [Bar("own", seconds, f"{seconds:.2f} s")],
        )
        for row in rows
        if row["benchmark"].startswith("growth")
        for size, seconds in row["cpu_seconds"].items()
    ]
    if growth:
        title = "CPU time of a cycle that places everything"
        yield Chart("growth", title, {"own": "Terrace"}, growth)


def _order_of(benchmark: str) -> str:
    """Return the order that a line of Philly is about, empty for another line."""
    _, is_philly, name = benchmark.partition("Philly, mean JCT in seconds: ")
    return (name.capitalize() if "," in name else name.upper()) if is_philly else ""


def _seconds(row: Row) -> str:
    return f"{row['value']:,.0f} ({row['jct_p95_s']:,.0f})"


def _packed(row: Row) -> list[Bar]:
    found = [("own", row["value"]), ("peer", row["reference"])]
    found += [("most", row["known_in_advance"])] if "known_in_advance" in row else []
    return [Bar(kind, value, f"{value:.2f}") for kind, value in found]


def _timed(row: Row, unit: str) -> list[Bar]:
    found = [("own", row["value"]), ("peer", row["reference"])]
    return [
        Bar(kind, value, f"{value:,.0f} {unit}")
        for kind, value in found
        if isinstance(value, int | float)
    ]


def main(figures: str = "docs/charts/figures.jsonl", folder: str = "docs/charts") -> None:
    """Read the figures and write the charts."""
    rows = [json.loads(line) for line in Path(figures).read_text().splitlines() if line.strip()]
    for chart in charts(rows):
        (Path(folder) / f"{chart.name}.svg").write_text(draw(chart))


if __name__ == "__main__":
    main(*sys.argv[1:])
