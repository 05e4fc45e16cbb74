"""Who listens to a machine's reports in tests of the agent."""

from __future__ import annotations

from worker.protocol import AttemptReport


class Ears:
    """Hears what the machine reports."""

    def __init__(self) -> None:
        self.reports: list[AttemptReport] = []

    def on_report(self, attempt: object, report: AttemptReport) -> None:
        del attempt
        self.reports.append(report)
