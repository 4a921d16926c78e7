"""`tallystream top`: whether everything is well, the groups, worst first, and the sums with the highest rate."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from tallystream_dashboards import formatting
from tallystream_dashboards.data.groups import read_groups_now
from tallystream_dashboards.data.lines import Period
from tallystream_dashboards.data.observed import read_observed
from tallystream_dashboards.data.problems import problems
from tallystream_dashboards.exit_codes import BAD, GOOD, UNKNOWN
from tallystream_dashboards.lag import time_lag
from tallystream_dashboards.lag.storage import group_json
from tallystream_dashboards.printable import printable
from tallystream_dashboards.terminal.lag import outdated
from tallystream_dashboards.terminal.show import Shown, TableSettings, aligned
from tallystream_dashboards.terminal.sums import read_sums, sum_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tallystream_aggregator.sinks.base import PointReader
    from tallystream_dashboards.data.groups import GroupsNow
    from tallystream_dashboards.data.problems import Problem
    from tallystream_dashboards.data.sums import Metric
    from tallystream_dashboards.lag.state import GroupState

MAX_PROBLEMS = 3
"""How many sentences the screen has; the others are counted."""


@dataclass(frozen=True, slots=True)
class Overview:
    """The state at a moment: what is not well as sentences, the groups, worst first, and the sums, fastest first.

    Without lag (`lag_known`) it is not known whether everything is well.
    """

    at_ms: int
    lag_known: bool
    problems: tuple[str, ...]
    groups: tuple[GroupState, ...]
    sums: tuple[Metric, ...]

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON object. Times are epoch ms."""
        return {
            **_verdict(self.at_ms, self.problems),
            "groups": [group_json(state, partitions=False) for state in self.groups],
            "sums": [sum_json(one, self.at_ms) for one in self.sums],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TopSettings(TableSettings):
    """Settings of `tallystream top`, those of every table."""

    def shown(self, reader: PointReader, at_ms: int) -> Shown:
        """Return one screen, of rows that fit the terminal. The exit code says whether everything is well."""
        state = read_overview(reader, at_ms)
        text = screen(state, *shutil.get_terminal_size())
        code = UNKNOWN if not state.lag_known else BAD if state.problems else GOOD
        return Shown([state.as_json()], text, "", code)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemsSettings(TableSettings):
    """Settings of `/v1/problems`, which has no groups and no sums."""

    def shown(self, reader: PointReader, at_ms: int) -> Shown:
        """Return what is not well."""
        return Shown([_verdict(at_ms, _problems(reader, _groups_now(reader, at_ms), at_ms))], "", "", GOOD)


def read_overview(reader: PointReader, at_ms: int) -> Overview:
    """Return the state at a time, epoch ms. Groups that are gone are left out.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    groups = _groups_now(reader, at_ms)
    sums = sorted(read_sums(reader, at_ms=at_ms), key=lambda one: -(one.rate(at_ms) or 0))
    present = tuple(one for one in groups.states if not one.gone)
    return Overview(at_ms, groups.round_ms is not None, _problems(reader, groups, at_ms), present, tuple(sums))


def screen(state: Overview, columns: int, lines: int) -> str:
    """Return the state as text of at most so many lines. Rows of tables are cut at the last column."""
    head = [line for sentence in _head(state) for line in wrap(printable(sentence), columns)]
    # Two empty lines, two heads of tables, and the line of the cursor.
    left = max(0, lines - len(head) - 5)
    groups, sums = rows_of(len(state.groups), len(state.sums), left)
    text = "\n".join([*head, "", _groups(state, groups), _sums(state, sums)])
    return "".join(f"{line[:columns]}\n" for line in text.rstrip("\n").split("\n"))


def rows_of(groups: int, sums: int, left: int) -> tuple[int, int]:
    """Return how many groups and sums `left` lines have: half of them each, and what the other one does not need."""
    shown = min(groups, max(left - left // 2, left - sums))
    return shown, min(sums, left - shown)


def _groups_now(reader: PointReader, at_ms: int) -> GroupsNow:
    return read_groups_now(reader, Period(at_ms, at_ms, at_ms))


def _problems(reader: PointReader, groups: GroupsNow, at_ms: int) -> tuple[str, ...]:
    """Return what is not well as sentences. Without lag that is not known, which is one, too."""
    observed = read_observed(reader, end_ms=at_ms, until_ms=at_ms + 1)
    found = [_sentence(problem, at_ms) for problem in problems(groups, observed, now_ms=at_ms)]
    return (*found, *([outdated(None, at_ms)] if groups.round_ms is None else []))


def _verdict(at_ms: int, found: Sequence[str]) -> dict[str, Any]:
    return {"at_ms": at_ms, "well": not found, "problems": list(found)}


def _sentence(problem: Problem, at_ms: int) -> str:
    since_ms = problem.since_ms
    since = "" if since_ms is None else f" for {formatting.duration((at_ms - since_ms) / 1000)}"
    return f"{problem.what}{since}: {problem.why}"


def _head(state: Overview) -> list[str]:
    title = f"Tallystream   {datetime.fromtimestamp(state.at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    found = state.problems
    if not found:
        well = f"Everything is well. Groups: {formatting.number(len(state.groups))}, none WARN or ERR."
        return [title, well, *([] if state.sums else ["No application has reported yet."])]
    shown = found if len(found) <= MAX_PROBLEMS else found[: MAX_PROBLEMS - 1]
    more = [f"and {len(found) - len(shown)} more problems"] if len(shown) < len(found) else []
    return [title, *shown, *more]


def _groups(state: Overview, rows: int) -> str:
    cells = [
        (one.status_name, one.lag_text, time_lag.text(one.time_lag), one.catch_up.drain, one.group)
        for one in state.groups[:rows]
    ]
    head = ("STATUS", "LAG", "TIME LAG", "CATCHES UP IN", _heading("GROUP", rows, len(state.groups)))
    return aligned([head, *cells], right={1, 2})


def _sums(state: Overview, rows: int) -> str:
    cells = [
        (
            formatting.number(one.value.last),
            formatting.rate(one.rate(state.at_ms)),
            formatting.number(one.newest("instances")),
            one.app,
            f"{one.name} {one.tags_text}".rstrip(),
        )
        for one in state.sums[:rows]
    ]
    head = ("VALUE", "RATE/S", "LIVING", "APP", _heading("SUM", rows, len(state.sums)))
    return aligned([head, *cells], right={0, 1, 2})


def _heading(name: str, rows: int, count: int) -> str:
    return name if rows >= count else f"{name} ({rows} of {formatting.number(count)})"
