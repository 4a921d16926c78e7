"""`tallystream lag [GROUP] [--watch] [--json] [--at TIME]`: the lag in the store, in the terminal or for a program."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tallystream.aggregator.sinks.base import SinkUnavailableError
from tallystream.aggregator.sinks.stores import StoreSettings, open_reader
from tallystream.dashboards import units
from tallystream.dashboards.lag._stop import stop_on_signals
from tallystream.dashboards.lag.evaluate import FIELDS, GroupState, evaluate
from tallystream.dashboards.lag.model import LAG
from tallystream.dashboards.lag.verdict import Rules, Verdict
from tallystream.dashboards.lag.wording import age, group_json, until_drained
from tallystream.reporter.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TextIO

    from tallystream.aggregator.sinks.base import PointReader

OK, WARN, ERR, UNKNOWN = 0, 1, 2, 3
"""Exit codes, as monitoring checks have them."""

_CODES = {Verdict.OK: OK, Verdict.WARN: WARN, Verdict.NOTFOUND: UNKNOWN}
_COLUMNS = ("GROUP", "VERDICT", "LAG", "AGE", "IN/S", "OUT/S", "THROUGH IN", "REASON")
_RIGHT = {2, 3, 4, 5}
_CLEAR = "\x1b[H\x1b[2J"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowSettings:
    """What `tallystream lag` may be told.

    Args:
        store: where the collector writes.
        group: one group, shown by partition; None: all groups.
        watch: show it again every `every_s` seconds, until SIGTERM or Ctrl-C.
        json: one JSON object a line instead of a table.
        at_ms: the moment to look at, epoch ms; None: now.
        history_s: how far back to look for how old a lag is.
        rules: the verdict's window and the lag that counts as none.

    Raises:
        ConfigError: a number is out of its bounds, or `watch` is asked of a moment in the past.
    """

    store: StoreSettings
    group: str | None = None
    watch: bool = False
    json: bool = False
    at_ms: int | None = None
    every_s: float = 2.0
    history_s: float = 3600.0
    rules: Rules = field(default_factory=Rules)

    def __post_init__(self) -> None:
        if not 0.5 <= self.every_s <= 3600:
            raise ConfigError("--every", self.every_s, "give seconds from 0.5 to 3600")
        if self.rules.window_s <= 0 or self.history_s < self.rules.window_s:
            raise ConfigError("--window", self.rules.window_s, "give seconds above 0, at most those of --history")
        if self.rules.allowed_lag < 0:
            raise ConfigError("--allowed-lag", self.rules.allowed_lag, "give a number of records, 0 or more")
        if self.watch and self.at_ms is not None:
            raise ConfigError("--at", self.at_ms, "leave --watch out: the past does not change")


def run(settings: ShowSettings, out: TextIO | None = None) -> int:
    """Print the lag to `out` (standard output) and return 0 (OK), 1 (WARN), 2 (ERR) or 3 (unknown), the worst of all.

    A store that can't be read is unknown, and says so; with `watch`, it is tried again. Must run in the main thread.

    Raises:
        ConfigError: the store's settings can't work.
    """
    out = out or sys.stdout
    with stop_on_signals() as stop:
        while True:
            states, problem = _read(settings)
            out.write(_CLEAR if settings.watch and not settings.json and out.isatty() else "")
            out.write(problem + "\n" if problem else _shown(states, settings))
            out.flush()
            if not settings.watch or stop.wait(settings.every_s):
                return exit_code(states)


def exit_code(states: Sequence[GroupState]) -> int:
    """Return the worst of the groups' codes: an error beats a warning, a warning beats not knowing; none is unknown."""
    codes = [_CODES.get(state.judgement.verdict, ERR) for state in states]
    return max(codes, key=(OK, UNKNOWN, WARN, ERR).index, default=UNKNOWN)


def table(states: Sequence[GroupState]) -> str:
    """Return the groups as a table for the terminal, in the order given."""
    rows = [
        (
            state.group,
            state.judgement.verdict.name,
            units.number(state.lag),
            age(state.seconds),
            _per_second(state, produced=True),
            _per_second(state, produced=False),
            until_drained(state.drain),
            state.judgement.reason,
        )
        for state in states
    ]
    return _aligned([_COLUMNS, *rows])


def partitions_table(state: GroupState) -> str:
    """Return one group's partitions as a table for the terminal, worst first."""
    rows = [
        (one.name, one.judgement.verdict.name, units.number(one.lag), age(one.seconds), one.judgement.reason)
        for one in state.partitions
    ]
    return _aligned([("PARTITION", "VERDICT", "LAG", "AGE", "REASON"), *rows])


def read_states(reader: PointReader, settings: ShowSettings, *, now_ms: int) -> list[GroupState]:
    """Return the states of the groups asked for, at the moment asked for.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    at_ms = settings.at_ms if settings.at_ms is not None else now_ms
    found = reader.read(
        LAG,
        FIELDS,
        start_ms=at_ms - round(settings.history_s * 1000),
        end_ms=at_ms + 1,
        tags={"group": settings.group} if settings.group is not None else None,
    )
    return evaluate(found, now_ms=at_ms, rules=settings.rules)


def _read(settings: ShowSettings) -> tuple[list[GroupState], str]:
    try:
        reader = open_reader(settings.store)
        try:
            states = read_states(reader, settings, now_ms=round(time.time() * 1000))
        finally:
            reader.close()
    except SinkUnavailableError as error:
        return [], f"The store can't be read: {error}"
    if not states and not settings.json:
        whose = f"the group {settings.group!r}" if settings.group is not None else "any group"
        return [], (
            f"There is no lag of {whose} in the last {units.duration(settings.history_s)}: "
            "look whether the collector runs (`tallystream status`)."
        )
    return states, ""


def _shown(states: Sequence[GroupState], settings: ShowSettings) -> str:
    if settings.json:
        return "".join(json.dumps(group_json(state), ensure_ascii=False) + "\n" for state in states)
    return table(states) + ("\n" + partitions_table(states[0]) if settings.group is not None else "")


def _per_second(state: GroupState, *, produced: bool) -> str:
    if state.rates is None:
        return units.NOTHING
    return units.number(round(state.rates.produced if produced else state.rates.consumed, 1))


def _aligned(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = (
        "  ".join(
            cell.rjust(width) if column in _RIGHT and column < len(row) - 1 else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )
    return "\n".join(lines) + "\n"
