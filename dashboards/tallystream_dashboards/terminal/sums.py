"""`tallystream sums [PATTERN]`: print the sums in the store, or on `metrics-agg`, as a table or as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from tallystream.errors import ConfigError
from tallystream_aggregator.shipping.points import is_sum
from tallystream_aggregator.sinks.stores import StoreSettings
from tallystream_dashboards import formatting
from tallystream_dashboards.data import sums
from tallystream_dashboards.data.lines import rate
from tallystream_dashboards.lag.storage import ALL as LAGS
from tallystream_dashboards.terminal.show import Shown, TableSettings, aligned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tallystream_aggregator.sinks.base import PointReader

WINDOW_MS = 60_000
"""The time over which a rate is computed."""

_COLUMNS = ("APP", "NAME", "TAGS", "TYPE", "VALUE", "RATE/S", "INSTANCES", "CHANGED")
_RIGHT = frozenset({4, 5, 6})


@dataclass(frozen=True, slots=True, kw_only=True)
class SumsSettings(TableSettings):
    """Settings of `tallystream sums`, and those of every table.

    Raises:
        ConfigError: a number is out of its bounds, or `at_ms` is set together with `watch` or without a store.
    """

    pattern: str | None = None
    app: str | None = None

    def __post_init__(self) -> None:
        TableSettings.__post_init__(self)
        if self.from_topic and self.at_ms is not None:
            raise ConfigError("--at", self.at_ms, "name a store: from the topic, only the newest sums are read")

    @property
    def from_topic(self) -> bool:
        """Whether the newest sums are read from the topic, without their rates."""
        return not isinstance(self.store, StoreSettings)

    def shown(self, reader: PointReader, at_ms: int) -> Shown:
        """Return a line for each sum. The exit code is 0 if there are sums, 1 if there are none."""
        found = read_sums(reader, at_ms=at_ms, pattern=self.pattern, app=self.app)
        rates = [None if self.from_topic else rate_of(one, at_ms) for one in found]
        return self.rows_or_json(list(map(sum_json, found, rates)), _table(found, rates, at_ms), _nothing(self))


def read_sums(
    reader: PointReader, *, at_ms: int, pattern: str | None = None, app: str | None = None
) -> list[sums.Metric]:
    """Return the sums at a time, epoch ms, each with its values of the minute before, by app, name and tags.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    series = [
        one
        for name in reader.measurements()
        if name not in LAGS and is_sum(name) and _is_selected(name, pattern)
        for one in sums.read_sums(reader, name, at_ms=at_ms, window_ms=WINDOW_MS, app=app)
    ]
    return [metric for metric in sums.metrics(series) if metric.type]


def _is_selected(name: str, pattern: str | None) -> bool:
    return fnmatchcase(name, pattern) if pattern is not None else not name.startswith(sums.REPORTER)


def _nothing(settings: SumsSettings) -> str:
    what = f"named {settings.pattern!r}" if settings.pattern is not None else "yet"
    of_app = f" of the app {settings.app!r}" if settings.app is not None else ""
    where, owner = ("topic", "aggregator") if settings.from_topic else ("store", "shipper")
    return f"The {where} has no sum{of_app} {what}. Check the name, and that the {owner} runs."


def _table(found: Sequence[sums.Metric], rates: Sequence[float | None], at_ms: int) -> str:
    rows = [
        (
            one.app,
            one.name,
            one.tags_text,
            one.type,
            formatting.number(one.value.last),
            formatting.rate(rate_of_one),
            formatting.number(one.newest("instances")),
            f"{formatting.duration((at_ms - one.changed_ms) / 1000)} ago",
        )
        for one, rate_of_one in zip(found, rates, strict=True)
    ]
    return aligned([_COLUMNS, *rows], right=_RIGHT)


def rate_of(metric: sums.Metric, at_ms: int) -> float | None:
    """Return the growth a second of a count in the minute before `at_ms`; None for gauges and up-down counters."""
    return None if metric.type in sums.GAUGES else rate(metric.value, window_ms=WINDOW_MS, at_ms=at_ms)


def sum_json(metric: sums.Metric, rate_per_s: float | None) -> dict[str, Any]:
    """Return a sum with its rate a second as a JSON object. Times are epoch ms, and null stands for no value."""
    return {
        "app": metric.app,
        "name": metric.name,
        "type": metric.type,
        "tags": dict(metric.tags),
        "value": metric.value.last,
        "rate": rate_per_s,
        "instances": metric.newest("instances"),
        "lives": metric.newest("lives"),
        "changed_ms": metric.changed_ms,
    }
