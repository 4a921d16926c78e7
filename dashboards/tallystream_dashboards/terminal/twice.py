"""`tallystream twice APP`: print the records of an app that were processed twice, as a table or as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tallystream_dashboards import formatting
from tallystream_dashboards.data.duplicates import Duplicates, read_duplicates_of_app
from tallystream_dashboards.data.lines import Period
from tallystream_dashboards.terminal.show import Shown, TableSettings, aligned

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tallystream_aggregator.sinks.base import PointReader

_COLUMNS = ("METRIC", "COUNTED", "COVERED", "TWICE", "AT MOST", "PARTITIONS")
_RIGHT = frozenset({1, 2, 3, 4})


@dataclass(frozen=True, slots=True, kw_only=True)
class TwiceSettings(TableSettings):
    """Settings of `tallystream twice`, and those of every table."""

    app: str

    def shown(self, reader: PointReader, at_ms: int) -> Shown:
        """Return a line for each counter with positions. The exit code is 0 if there are some, 1 if there are none."""
        found = read_duplicates_of_app(reader, self.app, Period(at_ms, at_ms, at_ms + 1))
        objects = [_json(self.app, *one) for one in found.items()]
        return self.rows_or_json(objects, _table(found), _nothing(self.app))


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
            formatting.number(one.at_most),
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
        "at_most": one.at_most,
        "positions": [asdict(each) for each in one.partitions],
    }
