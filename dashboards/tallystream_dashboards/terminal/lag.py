"""`tallystream lag [GROUP] [--watch] [--json] [--at TIME]`: print the lag in the store as a table or as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tallystream_dashboards import formatting
from tallystream_dashboards.exit_codes import BAD, GOOD, UNKNOWN, UNUSABLE
from tallystream_dashboards.lag import time_lag
from tallystream_dashboards.lag.reader import last_round_ms, read_group, read_groups
from tallystream_dashboards.lag.samples import MAX_GAP_MS
from tallystream_dashboards.lag.status import Status
from tallystream_dashboards.lag.storage import SLOT_MS, group_json
from tallystream_dashboards.terminal.show import Shown, TableSettings, aligned, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tallystream_aggregator.sinks.base import PointReader
    from tallystream_dashboards.lag.state import GroupState

OK, WARN, ERR = GOOD, BAD, UNUSABLE
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

    def shown(self, reader: PointReader, at_ms: int) -> Shown:
        """Return a line for each group, or a group with its partitions. The exit code is that of `exit_code`."""
        if self.group is None:
            states = read_groups(reader, at_ms=at_ms)
        else:
            one = read_group(reader, self.group, at_ms=at_ms)
            states = [] if one is None else [one]
        problem = outdated(last_round_ms(reader, at_ms=at_ms), at_ms, past=self.at_ms is not None)
        if not problem and not states:
            problem = f"{_nothing(reader, self.group, at_ms)} Check the collector's --include."
        code = UNKNOWN if problem else exit_code(states, group=self.group)
        objects = [group_json(state, partitions=self.group is not None) for state in states]
        text = table(states) if states else ""
        text += f"\n{partitions_table(states[0])}" if states and self.group is not None else ""
        return Shown(objects, text, problem, code)


def _nothing(reader: PointReader, group: str | None, at_ms: int) -> str:
    if group is None:
        return "The store has no lag of any group."
    known = [state.group for state in read_groups(reader, at_ms=at_ms)]
    return f"The store has no lag of the group {group!r}. {did_you_mean(group, known)}"


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
            state.lag_text,
            time_lag.text(state.time_lag),
            formatting.rate(state.rates.produced if state.rates else None),
            formatting.rate(state.rates.consumed if state.rates else None),
            state.catch_up.drain,
            state.evaluation.reason,
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
            time_lag.text(one.time_lag),
            one.evaluation.reason,
        )
        for one in state.partitions
    ]
    return aligned([("PARTITION", "STATUS", "LAG", "TIME LAG", "REASON"), *rows], right=_RIGHT)


def outdated(last_ms: int | None, at_ms: int, *, past: bool = False) -> str:
    """Return a sentence if the newest round of the collector, at `last_ms`, is too old to know the lag; else nothing.

    In the `past`, the history may be downsampled.
    """
    if last_ms is None:
        return "No lag has been collected: start the collector, `tallystream lag collect`, or `tallystream up`."
    if at_ms - last_ms > MAX_GAP_MS + (SLOT_MS if past else 0):
        age = formatting.duration((at_ms - last_ms) / 1000)
        return (
            f"The newest lag in the store was collected {age} before: the lag since then is not "
            "known. Check that the collector runs: `tallystream status`."
        )
    return ""
