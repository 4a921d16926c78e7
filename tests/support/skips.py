"""What was skipped and why, as one block at the end of a run; in CI a skip is a failure."""

from __future__ import annotations

import os
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def nothing_may_be_skipped(env: Mapping[str, str]) -> bool:
    """Tell whether a skip is a failure: in CI, and where TALLYSTREAM_NOTHING_SKIPPED is set."""
    return bool(env.get("CI") or env.get("TALLYSTREAM_NOTHING_SKIPPED"))


def by_reason(skipped: Sequence[pytest.TestReport | pytest.CollectReport]) -> dict[str, list[str]]:
    """Return the IDs of the skipped tests by the reason that they gave."""
    reasons: dict[str, list[str]] = defaultdict(list)
    for report in skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons[reason.removeprefix("Skipped: ")].append(report.nodeid)
    return dict(reasons)


def _skipped(config: pytest.Config) -> dict[str, list[str]]:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return {} if reporter is None else by_reason(reporter.stats.get("skipped", []))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what was not tested and why, or that nothing was skipped."""
    if config.getoption("collectonly"):
        return
    reasons = _skipped(config)
    if not reasons:
        terminalreporter.write_line("nothing was skipped")
        return
    terminalreporter.write_sep("=", "not tested here")
    for reason, tests in reasons.items():
        terminalreporter.write_line(f"{reason}:")
        for test in tests:
            terminalreporter.write_line(f"  {test}")
    if nothing_may_be_skipped(os.environ):
        terminalreporter.write_line("in CI nothing may be skipped: this run has failed", red=True)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Turn success into failure where a test was skipped that may not be."""
    if session.exitstatus == pytest.ExitCode.OK and nothing_may_be_skipped(os.environ) and _skipped(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
