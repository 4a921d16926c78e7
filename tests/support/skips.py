"""Hooks of pytest that list the skipped tests at the end of a run; in CI a skipped test is a failure."""

from __future__ import annotations

import os
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def skips_are_failures(env: Mapping[str, str]) -> bool:
    """Return whether a skipped test is a failure: in CI, and if TALLYSTREAM_NOTHING_SKIPPED is set."""
    return bool(env.get("CI") or env.get("TALLYSTREAM_NOTHING_SKIPPED"))


def by_reason(skipped: Sequence[pytest.TestReport | pytest.CollectReport]) -> dict[str, list[str]]:
    """Return the IDs of the skipped tests by their reason."""
    reasons: dict[str, list[str]] = defaultdict(list)
    for report in skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons[reason.removeprefix("Skipped: ")].append(report.nodeid)
    return dict(reasons)


def _skipped(config: pytest.Config) -> dict[str, list[str]]:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return {} if reporter is None else by_reason(reporter.stats.get("skipped", []))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the skipped tests by reason, or that no test was skipped."""
    if config.getoption("collectonly"):
        return
    reasons = _skipped(config)
    if not reasons:
        terminalreporter.write_line("no test was skipped")
        return
    terminalreporter.write_sep("=", "skipped tests")
    for reason, tests in reasons.items():
        terminalreporter.write_line(f"{reason}:")
        for test in tests:
            terminalreporter.write_line(f"  {test}")
    if skips_are_failures(os.environ):
        terminalreporter.write_line("in CI a skipped test is a failure: this run has failed", red=True)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run in CI that skipped a test."""
    if session.exitstatus == pytest.ExitCode.OK and skips_are_failures(os.environ) and _skipped(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
