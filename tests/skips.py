"""Say which tests were skipped without a listed reason; fail the run where asked to."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

LIST = Path(__file__).with_name("allowed_skips.txt")


def allowed() -> dict[str, str]:
    """Return part of a test's id -> reason."""
    lines = [line.strip() for line in LIST.read_text(encoding="utf-8").splitlines()]
    rows = [line.split("  ", 1) for line in lines if line and not line.startswith("#")]
    return {part: reason.strip() for part, reason in rows}


@dataclass(eq=False)
class SkipWatch:
    """A pytest plugin that remembers skipped tests."""

    is_fatal: bool
    unlisted: list[str] = field(default_factory=list)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember a skip that nobody listed; an expected failure is none."""
        if report.skipped and not hasattr(report, "wasxfail"):
            self._note(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Remember a module that skipped itself whole."""
        if report.skipped:
            self._note(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail the run."""
        if self.unlisted and self.is_fatal and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name them."""
        if self.unlisted:
            terminalreporter.section("skipped without a reason in tests/allowed_skips.txt")
            for name in sorted(set(self.unlisted)):
                terminalreporter.line(name)

    def _note(self, name: str) -> None:
        if not any(part in name for part in allowed()):
            self.unlisted.append(name)
