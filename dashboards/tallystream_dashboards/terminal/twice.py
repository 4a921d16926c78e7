"""`tallystream twice APP`: print the records of an app that were processed twice, as a table or as JSON."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tallystream_dashboards import formatting
from tallystream_dashboards.data.duplicates import Duplicates, read_duplicates_of_app
from tallystream_dashboards.data.period import Period
from tallystream_dashboards.terminal.show import Shown, TableSettings, aligned, show, table_or_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TextIO

    from tallystream_aggregator.sinks.base import PointReader

_COLUMNS = ("METRIC", "COUNTED", "COVERED", "TWICE", "PARTITIONS")
_RIGHT = frozenset({1, 2, 3})


@dataclass(frozen=True, slots=True, kw_only=True)
class TwiceSettings(TableSettings):
    """Settings of `tallystream twice`, and those of every table."""

    app: str


def run(settings: TwiceSettings, out: TextIO | None = None, *, clock: Callable[[], float] = time.time) -> int:
    """Print, for each counter with positions, the records processed twice to `out` (standard output).

    Return the exit code: 0 if there are counters with positions, 1 if there are none, and 3 if the store can't be read;
    then the output says so. With `watch` it is read again. Must be called in the main thread.

    Raises:
        ConfigError: the store's settings can't work.
    """

    def read(reader: PointReader, at_ms: int) -> Shown:
        found = read_duplicates_of_app(reader, settings.app, Period(at_ms, at_ms, at_ms + 1))
        objects = [_json(settings.app, *one) for one in found.items()]
        return table_or_json(settings, objects, _table(found), _nothing(settings.app))

    return show(settings, read, out, clock=clock)


def _nothing(app: str) -> str:
    return (
        f"The store has no counter of the app {app!r} with positions. Check the name, and that the app counts with "
        "ConsumerProgress, or sets the positions NAME.position together with the counter NAME."
    )


def _table(found: Mapping[str, Duplicates]) -> str:
    rows = [
        (
            name,
            formatting.number(one.processed),
            formatting.number(one.covered),
            formatting.number(one.count),
            formatting.number(len(one.partitions)),
        )
        for name, one in found.items()
    ]
    return aligned([_COLUMNS, *rows], right=_RIGHT)


def _json(app: str, name: str, one: Duplicates) -> dict[str, Any]:
    """Return the records processed twice by one counter, and its positions, as a JSON object."""
    return {
        "app": app,
        "metric": name,
        "counted": one.processed,
        "covered": one.covered,
        "twice": one.count,
        "positions": [
            {"topic": each.topic, "partition": each.partition, "start": each.start, "position": each.position}
            for each in one.partitions
        ],
    }
