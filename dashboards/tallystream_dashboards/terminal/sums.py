"""`tallystream sums [PATTERN]`: print the sums in the store, as a table or as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from tallystream_aggregator.sinks.base import is_sum
from tallystream_dashboards import formatting
from tallystream_dashboards.data import sums
from tallystream_dashboards.data.lines import Period
from tallystream_dashboards.exit_codes import GOOD
from tallystream_dashboards.terminal.show import Shown, TableSettings, aligned, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tallystream_aggregator.sinks.base import PointReader

_COLUMNS = ("APP", "NAME", "TAGS", "TYPE", "VALUE", "RATE/S", "P50", "P99", "LIVING", "CHANGED")
_RIGHT = frozenset({4, 5, 6, 7, 8})


@dataclass(frozen=True, slots=True, kw_only=True)
class SumsSettings(TableSettings):
    """Settings of `tallystream sums`, and those of every table."""

    pattern: str | None = None
    app: str | None = None
    all: bool = False

    def shown(self, reader: PointReader, at_ms: int) -> Shown:
        """Return a line for each sum. The exit code is 0 if there are sums."""
        pattern = self.pattern or ("*" if self.all else None)
        found = read_sums(reader, at_ms=at_ms, pattern=pattern, app=self.app)
        objects = [sum_json(one, at_ms) for one in found]
        if not objects:
            return Shown.nothing(_nothing(self, reader))
        return Shown(objects, _table(sums.with_totals(found), at_ms), "", GOOD)


def read_sums(
    reader: PointReader, *, at_ms: int, pattern: str | None = None, app: str | None = None
) -> list[sums.Metric]:
    """Return the sums at a time, epoch ms, each with its values of the minute before, by app, name and tags.

    Raises:
        SinkUnavailableError: the store does not answer.
    """

    def selected(name: str) -> bool:
        return fnmatchcase(name, pattern) if pattern is not None else not name.startswith(sums.OWN)

    found, _ = sums.read_all(reader, Period(at_ms, at_ms, at_ms), app=app, selected=selected)
    return [metric for metric in found if metric.type]


def _nothing(settings: SumsSettings, reader: PointReader) -> str:
    what = f"named {settings.pattern!r}" if settings.pattern is not None else "yet"
    of_app = f" of the app {settings.app!r}" if settings.app is not None else ""
    check = "Check the name, and that"
    if settings.pattern is not None and settings.app is None:
        names = {name for name in filter(is_sum, reader.measurements()) if not name.startswith(sums.OWN)}
        check = f"{did_you_mean(settings.pattern, names)} Check that"
    return f"The store has no sum{of_app} {what}. {check} the shipper runs."


def _table(found: Sequence[sums.Metric], at_ms: int) -> str:
    rows = [
        (
            one.app,
            one.name,
            one.tags_text,
            one.type,
            formatting.number(one.value.last),
            formatting.rate(one.rate(at_ms)),
            sums.value_text(one.type, one.percentile("p50")),
            sums.value_text(one.type, one.percentile("p99")),
            formatting.number(one.newest("instances")),
            f"{formatting.duration((at_ms - one.changed_ms) / 1000)} ago",
        )
        for one in found
    ]
    return aligned([_COLUMNS, *rows], right=_RIGHT)


def sum_json(metric: sums.Metric, at_ms: int) -> dict[str, Any]:
    """Return a sum, with its rate a second at a time, as a JSON object.

    Times are epoch ms, and null stands for no value. A distribution has its percentiles, too.
    """
    return {
        "app": metric.app,
        "name": metric.name,
        "type": metric.type,
        "tags": dict(metric.tags),
        "value": metric.value.last,
        "rate": metric.rate(at_ms),
        **({name: metric.percentile(name) for name in sums.PERCENTILES} if metric.type in sums.DISTRIBUTIONS else {}),
        "instances": metric.newest("instances"),
        "lives": metric.newest("lives"),
        "changed_ms": metric.changed_ms,
    }
