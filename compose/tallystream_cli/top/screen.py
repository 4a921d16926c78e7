"""The screen of `tallystream top`: the first answer, the groups and the sums. It fits every terminal from 80 x 24."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

from tallystream_dashboards import formatting
from tallystream_dashboards.lag.formatting import catches_up_in, lag_range, time_lag
from tallystream_dashboards.lag.status import Status
from tallystream_dashboards.printable import printable
from tallystream_dashboards.terminal.sums import rate_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console, ConsoleOptions, RenderResult

    from tallystream_dashboards.terminal.overview import Overview

MAX_PROBLEMS = 3
"""How many sentences the screen has; the others are counted."""
MIN_NAME = 12
"""The narrowest width of the column of names."""
_GAP = 2
_COLORS = {Status.OK: "green", Status.NOTFOUND: "dim", Status.WARN: "yellow"}


class TopScreen:
    """What rich draws. Lines that are too long end with an ellipsis, and rows that do not fit are left out."""

    def __init__(self, overview: Overview, *, keys: bool) -> None:
        self._overview = overview
        self._keys = keys

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield at most as many lines as `options` has."""
        head = self._head()
        yield from head
        # Each table has a line of headings, and an empty line is above it.
        left = max(0, (options.height or options.size.height) - len(head) - 4)
        groups, sums = rows_of(len(self._overview.groups), len(self._overview.sums), left)
        yield Text()
        yield self._groups(groups)
        yield Text()
        yield self._sums(sums)

    def _head(self) -> list[Text]:
        overview = self._overview
        time = datetime.fromtimestamp(overview.at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        quits = "   q quits" if self._keys else ""
        title = _line(f"Tallystream   {time}{quits}", "bold")
        problems = overview.problems
        if not problems:
            count = formatting.number(len(overview.groups))
            return [title, _line(f"Everything is well. Groups: {count}, none WARN or ERR.", "green")]
        shown = problems if len(problems) <= MAX_PROBLEMS else problems[: MAX_PROBLEMS - 1]
        lines = [_line(problem, "red") for problem in shown]
        if len(shown) < len(problems):
            lines.append(_line(f"and {len(problems) - len(shown)} more problems", "red"))
        return [title, *lines]

    def _groups(self, rows: int) -> Table:
        states = self._overview.groups
        table = _table(
            _heading("GROUP", rows, len(states)),
            (("STATUS", "left"), ("LAG", "right"), ("TIME LAG", "right"), ("CATCHES UP IN", "left")),
        )
        for state in states[:rows]:
            status = Text(state.status_name, _COLORS.get(state.evaluation.status, "red"))
            cells = (lag_range(state), time_lag(state.time_lag), catches_up_in(state.catch_up))
            table.add_row(Name(state.group), status, *map(Text, cells))
        return table

    def _sums(self, rows: int) -> Table:
        sums, at_ms = self._overview.sums, self._overview.at_ms
        columns = (("APP", "left"), ("VALUE", "right"), ("RATE/S", "right"), ("INSTANCES", "right"))
        table = _table(_heading("SUM", rows, len(sums)), columns)
        for one in sums[:rows]:
            table.add_row(
                Name(f"{one.name} {one.tags_text}".rstrip()),
                Text(printable(one.app)),
                Text(formatting.number(one.value.last)),
                Text(formatting.rate(rate_of(one, at_ms))),
                Text(formatting.number(one.newest("instances"))),
            )
        return table


class Name:
    """A name in a column: if it is too long, its middle is left out, because similar names differ at their ends."""

    def __init__(self, text: str) -> None:
        self._text = printable(text)

    def __rich_measure__(self, _console: Console, _options: ConsoleOptions) -> Measurement:
        """Return the narrowest and the widest width."""
        width = cell_len(self._text)
        return Measurement(min(width, MIN_NAME), width)

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the name in the column's width."""
        yield Text(shortened(self._text, options.max_width), no_wrap=True, overflow="crop")


def shortened(text: str, width: int) -> str:
    """Return a text of at most `width` (2 or more) cells, with an ellipsis in place of its middle."""
    if cell_len(text) <= width:
        return text
    end = (width - 1) // 2
    return f"{set_cell_size(text, width - 1 - end)}…{set_cell_size(text[::-1], end)[::-1]}"


def rows_of(groups: int, sums: int, left: int) -> tuple[int, int]:
    """Return how many groups and sums `left` lines have: half of them each, and what the other one does not need."""
    shown = min(groups, max(left - left // 2, left - sums))
    return shown, min(sums, left - shown)


def _line(text: str, style: str) -> Text:
    return Text(printable(text), style, no_wrap=True, overflow="ellipsis")


def _heading(name: str, rows: int, count: int) -> str:
    return name if rows >= count else f"{name} ({rows} of {formatting.number(count)})"


def _table(first: str, others: Sequence[tuple[str, str]]) -> Table:
    """Return an empty table. The first column takes the width that the others leave."""
    columns: Iterable[Column] = (
        Column(first, ratio=1, min_width=MIN_NAME, no_wrap=True, overflow="ellipsis"),
        *(
            Column(name, justify="right" if to == "right" else "left", no_wrap=True, max_width=26)
            for name, to in others
        ),
    )
    return Table(*columns, box=None, expand=True, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="bold")
