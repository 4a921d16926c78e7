"""`tallystream sums [PATTERN] [--watch] [--json] [--at TIME]`: print the sums in the store as a table or as JSON."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from tallystream.errors import ConfigError
from tallystream_aggregator.shipping.points import is_sum
from tallystream_aggregator.sinks.base import SinkUnavailableError
from tallystream_aggregator.sinks.stores import StoreSettings, open_reader
from tallystream_aggregator.terminal import printable_json
from tallystream_dashboards import formatting
from tallystream_dashboards.lag.storage import ALL as LAGS
from tallystream_dashboards.page.data import sums
from tallystream_dashboards.page.data.lines import rate
from tallystream_dashboards.terminal import Shown, aligned, show

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TextIO

    from tallystream_aggregator.sinks.base import PointReader, Series

FOUND, NOTHING, UNREADABLE = 0, 1, 3
"""Exit codes: there are sums, there are none, the store can't be read."""

WINDOW_MS = 60_000
"""The time over which a rate is computed."""

_COLUMNS = ("APP", "NAME", "TAGS", "TYPE", "VALUE", "RATE/S", "INSTANCES", "CHANGED")
_RIGHT = frozenset({4, 5, 6})


@dataclass(frozen=True, slots=True, kw_only=True)
class SumsSettings:
    """Settings of `tallystream sums`.

    Args:
        store: the store that the shipper writes to.
        pattern: a shell pattern of the names to show; None: all names but those of the reporters' own metrics.
        app: the app whose sums are shown; None: all apps.
        watch: print the sums again every `every_s` seconds, until SIGTERM or Ctrl-C.
        json: print one JSON object a line instead of a table.
        at_ms: the moment to show, epoch ms; None: now.

    Raises:
        ConfigError: a number is out of its bounds, or both `watch` and `at_ms` are set.
    """

    store: StoreSettings
    pattern: str | None = None
    app: str | None = None
    watch: bool = False
    json: bool = False
    at_ms: int | None = None
    every_s: float = 2.0

    def __post_init__(self) -> None:
        if not 0.5 <= self.every_s <= 3600:
            raise ConfigError("--every", self.every_s, "give seconds from 0.5 to 3600")
        if self.watch and self.at_ms is not None:
            raise ConfigError("--at", self.at_ms, "leave --watch out: the past does not change")


def run(settings: SumsSettings, out: TextIO | None = None, *, clock: Callable[[], float] = time.time) -> int:
    """Print the sums to `out` (standard output) and return the exit code.

    The code is 0 if there are sums, 1 if there are none, and 3 if the store can't be read; then the output says so.
    With `watch` it is read again. Must be called in the main thread.

    Raises:
        ConfigError: the store's settings can't work.
    """

    def read() -> Shown:
        at_ms = settings.at_ms if settings.at_ms is not None else round(clock() * 1000)
        found, problem, code = _read(settings, at_ms)
        return Shown(_text(found, at_ms, as_json=settings.json), problem, code)

    return show(read, watch=settings.watch, json=settings.json, every_s=settings.every_s, out=out)


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
        for one in _series(reader, name, at_ms, app)
    ]
    return [metric for metric in sums.metrics(series) if metric.type]


def _is_selected(name: str, pattern: str | None) -> bool:
    return fnmatchcase(name, pattern) if pattern is not None else not name.startswith(sums.REPORTER)


def _series(reader: PointReader, name: str, at_ms: int, app: str | None) -> list[Series]:
    tags = None if app is None else {"app": app}
    always = reader.read(name, sums.ALWAYS, start_ms=at_ms, end_ms=at_ms + 1, tags=tags, last_before=True)
    fields = sums.fields(one.tags.get("metric_type", "") for one in always)
    start_ms = at_ms - WINDOW_MS
    return reader.read(name, fields, start_ms=start_ms, end_ms=at_ms + 1, tags=tags, last_before=True) if always else []


def _read(settings: SumsSettings, at_ms: int) -> tuple[list[sums.Metric], str, int]:
    try:
        reader = open_reader(settings.store)
        try:
            found = read_sums(reader, at_ms=at_ms, pattern=settings.pattern, app=settings.app)
        finally:
            reader.close()
    except SinkUnavailableError as error:
        return [], f"The store can't be read: {error}", UNREADABLE
    if found:
        return found, "", FOUND
    what = f"named {settings.pattern!r}" if settings.pattern is not None else "yet"
    of_app = f" of the app {settings.app!r}" if settings.app is not None else ""
    return [], f"The store has no sum{of_app} {what}. Check the name, and that the shipper runs.", NOTHING


def _text(found: Sequence[sums.Metric], at_ms: int, *, as_json: bool) -> str:
    if as_json:
        return "".join(printable_json(json.dumps(sum_json(one, at_ms), ensure_ascii=False)) + "\n" for one in found)
    rows = [
        (
            one.app,
            one.name,
            one.tags_text,
            one.type,
            formatting.number(one.value.last),
            formatting.rate(rate_of(one, at_ms)),
            formatting.number(one.newest("instances")),
            f"{formatting.duration((at_ms - one.changed_ms) / 1000)} ago",
        )
        for one in found
    ]
    return aligned([_COLUMNS, *rows], right=_RIGHT) if rows else ""


def rate_of(metric: sums.Metric, at_ms: int) -> float | None:
    """Return the growth a second of a count in the minute before `at_ms`; None for gauges and up-down counters."""
    return None if metric.type in sums.GAUGES else rate(metric.value, window_ms=WINDOW_MS, at_ms=at_ms)


def sum_json(metric: sums.Metric, at_ms: int) -> dict[str, Any]:
    """Return a sum as a JSON object. Times are epoch ms, the rate is per second, and null stands for no value."""
    return {
        "app": metric.app,
        "name": metric.name,
        "type": metric.type,
        "tags": dict(metric.tags),
        "value": metric.value.last,
        "rate": rate_of(metric, at_ms),
        "instances": metric.newest("instances"),
        "lives": metric.newest("lives"),
        "changed_ms": metric.changed_ms,
    }
