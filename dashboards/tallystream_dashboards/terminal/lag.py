"""`tallystream lag [GROUP] [--watch] [--json] [--at TIME]`: print the lag in the store as a table or as JSON."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tallystream_dashboards import formatting
from tallystream_dashboards.lag.formatting import catches_up_in, group_json, lag_range, time_lag, why
from tallystream_dashboards.lag.reader import last_round_ms, read_group, read_groups
from tallystream_dashboards.lag.samples import MAX_GAP_MS
from tallystream_dashboards.lag.status import Status
from tallystream_dashboards.lag.storage import SLOT_MS
from tallystream_dashboards.terminal.show import UNREADABLE, Shown, TableSettings, aligned, json_lines, show

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TextIO

    from tallystream_aggregator.sinks.base import PointReader
    from tallystream_dashboards.lag.state import GroupState

OK, WARN, ERR, UNKNOWN = 0, 1, 2, UNREADABLE
"""Exit codes, as in monitoring checks."""

_CODES = {Status.OK: OK, Status.WARN: WARN, Status.NOTFOUND: UNKNOWN}
_COLUMNS = ("GROUP", "STATUS", "LAG", "TIME LAG", "PRODUCED/S", "CONSUMED/S", "CATCHES UP IN", "REASON")
_RIGHT = frozenset({2, 3, 4, 5})


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowSettings(TableSettings):
    """Settings of `tallystream lag`, and those of every table.

    Raises:
        ConfigError: a number is out of its bounds, or both `watch` and `at_ms` are set.
    """

    group: str | None = None


def run(settings: ShowSettings, out: TextIO | None = None, *, clock: Callable[[], float] = time.time) -> int:
    """Print the lag to `out` (standard output) and return the exit code: 0 (OK), 1 (WARN), 2 (ERR) or 3 (unknown).

    If the store can't be read, the output says so and the code is 3; with `watch` it is read again. Must be called in
    the main thread.

    Raises:
        ConfigError: the store's settings can't work.
    """

    def read(reader: PointReader, at_ms: int) -> Shown:
        states, problem = _read(reader, settings, at_ms)
        text = _text(states, settings) if states or settings.json else ""
        return Shown(text, problem, UNKNOWN if problem else exit_code(states, group=settings.group))

    return show(settings, read, out, clock=clock)


def exit_code(states: Sequence[GroupState], *, group: str | None = None) -> int:
    """Return the worst of the groups' codes: ERR, then WARN, then UNKNOWN. Without groups it is UNKNOWN.

    Groups that are gone count only if they are the requested `group`. If all groups are gone, the code is OK.
    """
    counted = [state for state in states if not state.gone or group is not None]
    if states and not counted:
        return OK
    codes = [_CODES.get(state.evaluation.status, ERR) for state in counted]
    return max(codes, key=(OK, UNKNOWN, WARN, ERR).index, default=UNKNOWN)


def table(states: Sequence[GroupState]) -> str:
    """Return the groups as a table for the terminal, in the order given."""
    rows = [
        (
            state.group,
            state.status_name,
            lag_range(state),
            time_lag(state.time_lag),
            _per_second(state, produced=True),
            _per_second(state, produced=False),
            catches_up_in(state.catch_up),
            why(state),
        )
        for state in states
    ]
    return aligned([_COLUMNS, *rows], right=_RIGHT)


def partitions_table(state: GroupState) -> str:
    """Return one group's partitions as a table for the terminal, worst first."""
    rows = [
        (
            one.name,
            one.evaluation.status.name,
            formatting.number(one.lag),
            time_lag(one.time_lag),
            one.evaluation.reason,
        )
        for one in state.partitions
    ]
    return aligned([("PARTITION", "STATUS", "LAG", "TIME LAG", "REASON"), *rows], right=_RIGHT)


def _read(reader: PointReader, settings: ShowSettings, at_ms: int) -> tuple[list[GroupState], str]:
    states = _states(reader, settings, at_ms)
    problem = outdated(last_round_ms(reader, at_ms=at_ms), at_ms, past=settings.at_ms is not None)
    if not problem and not states:
        name = f"the group {settings.group!r}" if settings.group is not None else "any group"
        problem = f"The store has no lag of {name}. Check the name and the collector's --include."
    return states, problem


def outdated(last_ms: int | None, at_ms: int, *, past: bool = False) -> str:
    """Return a sentence if the newest round of the collector, at `last_ms`, is too old to know the lag; else nothing.

    In the `past`, the history may be downsampled.
    """
    if last_ms is None:
        return "No lag has been collected: start the collector, `tallystream lag collect`."
    if at_ms - last_ms > MAX_GAP_MS + (SLOT_MS if past else 0):
        age = formatting.duration((at_ms - last_ms) / 1000)
        return (
            f"The newest lag in the store was collected {age} before: the lag since then is not "
            "known. Check that the collector runs: `tallystream status`."
        )
    return ""


def _states(reader: PointReader, settings: ShowSettings, at_ms: int) -> list[GroupState]:
    if settings.group is None:
        return read_groups(reader, at_ms=at_ms)
    state = read_group(reader, settings.group, at_ms=at_ms)
    return [] if state is None else [state]


def _text(states: Sequence[GroupState], settings: ShowSettings) -> str:
    if settings.json:
        return json_lines(group_json(state, partitions=settings.group is not None) for state in states)
    return table(states) + ("\n" + partitions_table(states[0]) if settings.group is not None else "")


def _per_second(state: GroupState, *, produced: bool) -> str:
    if state.rates is None:
        return formatting.DASH
    return formatting.number(round(state.rates.produced if produced else state.rates.consumed, 1))
