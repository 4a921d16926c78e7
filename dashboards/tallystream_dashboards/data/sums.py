"""The sums that the page shows, from the series of a PointReader. Pure."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tallystream.metric_types import GROWING
from tallystream_aggregator.sinks.base import Series, is_sum
from tallystream_dashboards import formatting
from tallystream_dashboards.data.lines import Line, rate, total

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tallystream_aggregator.sinks.base import PointReader
    from tallystream_dashboards.data.lines import Period

MAX_MEASUREMENTS = 500
"""How many metrics are read, the first ones by name."""

ALWAYS = ("instances", "lives")
"""The fields of every point of a sum."""

VALUE_FIELD = GROWING | {"position": "position"}
"""The field with the value, by type. For others (updown, gauge) it is `sum`."""

OWN = "tallystream."
"""The prefix of the names of the metrics of Tallystream itself."""
REPORTER = f"{OWN}reporter."
"""The prefix of the names of a reporter's own metrics, which every app has."""

GAUGES = ("gauge", "updown")
DISTRIBUTIONS = ("histogram", "timer")
PERCENTILES = ("p50", "p95", "p99")
"""The percentiles that are shown of a distribution."""

RATE_MS = 60_000
"""The time over which a rate is computed."""
RATES = 120
"""How many rates a chart has over its period."""

NOUNS = {"timer": "Calls", "histogram": "Values", "position": "Position"}
"""What the value of a type is called; for other types it is called a sum."""


def noun(type_: str | None) -> str:
    """Return what the value of this type is called, for the title of a tile or a chart."""
    return NOUNS.get(type_ or "", "Sum")


def counted(type_: str | None, name: str) -> str:
    """Return the title of a metric's value: `Calls of batch`, `Sum of records`."""
    return f"{noun(type_)} of {name}"


def value_text(type_: str, value: float | None) -> str:
    """Return a mean or a percentile as text, empty if there is none.

    A timer's is a time, a histogram's has the unit of its values.
    """
    if value is None:
        return ""
    return formatting.mean_time(value) if type_ == "timer" else formatting.number(value)


def fields(types: Iterable[str]) -> tuple[str, ...]:
    """Return the fields to read for metrics of these types. Reading a field that does not exist is slow in a store."""
    names = set(ALWAYS)
    for type_ in types:
        names.add(VALUE_FIELD.get(type_, "sum"))
        if type_ in GAUGES:
            names.add("number")
        if type_ in DISTRIBUTIONS:
            names |= {"sum", *PERCENTILES}
    return tuple(sorted(names))


@dataclass(frozen=True, slots=True)
class Metric:
    """One sum: a metric of an app, with the user's own tags, and its fields over time.

    The total of sums that differ only in their tags has their number in `parts`.
    """

    app: str
    name: str
    type: str
    tags: tuple[tuple[str, str], ...]
    fields: Mapping[str, Series]
    parts: int = 0

    @property
    def tags_text(self) -> str:
        """The tags as `key=value, …`; of a total, how many sums it adds up."""
        if self.parts:
            return f"total of {self.parts:,}"
        return ", ".join(f"{key}={value}" for key, value in self.tags)

    @property
    def label(self) -> str:
        """The tags, or the name if there are none."""
        return self.tags_text or self.name

    @property
    def of_reporter(self) -> bool:
        """Whether it is one of a reporter's own metrics."""
        return self.name.startswith(REPORTER)

    @property
    def changed_ms(self) -> int:
        """The time of the newest point, epoch ms. A sum is published when it changes."""
        return max(series.times_ms[-1] for series in self.fields.values())

    def line(self, field: str) -> Line:
        """Return one field over time, under this metric's label."""
        series = self.fields.get(field)
        if series is None:
            return Line(self.label)
        return Line(self.label, list(series.times_ms), [_number(value) for value in series.values])

    def at(self, field: str, at_ms: int) -> float | int | None:
        """Return one field at a time; None before its first point."""
        series = self.fields.get(field)
        index = bisect_right(series.times_ms, at_ms) - 1 if series is not None else -1
        return _number(series.values[index]) if series is not None and index >= 0 else None

    def newest(self, field: str) -> int:
        """Return the newest value of a field that is a number of instances or lives, 0 if there is none."""
        return int(self.line(field).last or 0)

    @property
    def value(self) -> Line:
        """The value over time. A gauge has no value while no life reports it."""
        line = self.line(VALUE_FIELD.get(self.type, "sum"))
        if self.type not in GAUGES:
            return line
        unreported = [(t, None) for t, n in zip(*_pair(self.line("number")), strict=True) if n == 0]
        values = dict(zip(*_pair(line), strict=True)) | dict(unreported)
        times = sorted(values)
        return Line(line.label, times, [values[time] for time in times])

    def rate(self, at_ms: int) -> float | None:
        """Return the growth a second of a count in the minute before `at_ms`; None for gauges."""
        return None if self.type in GAUGES else rate(self.value, window_ms=RATE_MS, at_ms=at_ms)

    def rates(self, start_ms: int, end_ms: int) -> Line:
        """Return the growth a second of a count, at equal times up to the end of a period, each in the time before it.

        That time is a minute, or in a long period the time between two of them.
        """
        line, step = self.value, max(1, (end_ms - start_ms) // RATES)
        counts = line.times_ms and self.type not in GAUGES
        times = [at for at in range(end_ms, start_ms, -step) if at > line.times_ms[0]][::-1] if counts else []
        return Line(self.label, times, [rate(line, window_ms=max(RATE_MS, step), at_ms=at_ms) for at_ms in times])

    def percentile(self, name: str) -> float | None:
        """Return the newest value of a percentile of a distribution; None if its newest point has none."""
        line = self.line(name)
        return line.last if line.times_ms[-1:] == self.line("count").times_ms[-1:] else None

    @property
    def mean(self) -> float | None:
        """The mean of a distribution's values (Σ values / count).

        None for other types, empty distributions, and those whose newest point has no sum.
        """
        total, count = self.line("sum"), self.line("count")
        if self.type not in DISTRIBUTIONS or total.times_ms[-1:] != count.times_ms[-1:]:
            return None
        return total.last / count.last if total.last is not None and count.last else None


def metrics(series: Iterable[Series]) -> list[Metric]:
    """Return each sum with its fields, sorted by app, name, tags and type. Empty series are ignored."""
    fields: dict[tuple[str, str, tuple[tuple[str, str], ...], str], dict[str, Series]] = {}
    for one in series:
        if not one.times_ms:
            continue
        tags = dict(one.tags)
        app, type_ = tags.pop("app", ""), tags.pop("metric_type", "")
        fields.setdefault((app, one.measurement, tuple(sorted(tags.items())), type_), {})[one.field] = one
    return [Metric(app, name, type_, tags, fields[app, name, tags, type_]) for app, name, tags, type_ in sorted(fields)]


def with_totals(metrics: Sequence[Metric]) -> list[Metric]:
    """Return the metrics in their order. Before several that differ only in their tags comes their total.

    Gauges and positions have none. A total has no percentiles.
    """
    alike: dict[tuple[str, str, str], list[Metric]] = {}
    for one in metrics:
        alike.setdefault((one.app, one.name, one.type), []).append(one)
    return [
        one
        for parts in alike.values()
        for one in ([_total(parts)] if len(parts) > 1 and parts[0].type not in (*GAUGES, "position") else []) + parts
    ]


def _total(parts: Sequence[Metric]) -> Metric:
    app, name, type_ = parts[0].app, parts[0].name, parts[0].type
    fields: dict[str, Series] = {}
    for field in {VALUE_FIELD.get(type_, "sum"), *(("sum",) if type_ in DISTRIBUTIONS else ()), *ALWAYS}:
        lines = [one.line(field) for one in parts]
        # An instance may have several of the parts.
        together = total(lines, max if field == "instances" else sum)
        if together.times_ms:
            values: list[int | float | str | bool] = [value or 0 for value in together.values]
            fields[field] = Series(name, {}, field, together.times_ms, values)
    return Metric(app, name, type_, (), fields, parts=len(parts))


def read_all(
    reader: PointReader, period: Period, *, app: str | None = None, selected: Callable[[str], bool] | None = None
) -> tuple[list[Metric], int]:
    """Return the sums at the end of the period, each with its values of the minute before, and how many are not read.

    Of the `selected` names none is left out.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    names = [*filter(is_sum, reader.measurements())]
    read = names[:MAX_MEASUREMENTS] if selected is None else [name for name in names if selected(name)]
    start_ms, until_ms = period.end_ms - RATE_MS, period.until_ms
    series = [one for name in read for one in read_sums(reader, name, start_ms=start_ms, until_ms=until_ms, app=app)]
    return metrics(series), 0 if selected else len(names) - len(read)


def read_sums(reader: PointReader, name: str, *, start_ms: int, until_ms: int, app: str | None = None) -> list[Series]:
    """Return the fields of the sums of a measurement in a period, and their last values before it.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    tags = None if app is None else {"app": app}
    end_ms = until_ms + 1
    newest = reader.read(name, ALWAYS, start_ms=0, end_ms=end_ms, tags=tags, newest=True)
    wanted = fields(one.tags.get("metric_type", "") for one in newest)
    return reader.read(name, wanted, start_ms=start_ms, end_ms=end_ms, tags=tags, last_before=True) if newest else []


def _pair(line: Line) -> tuple[list[int], list[float | int | None]]:
    return line.times_ms, line.values


def _number(value: object) -> float | int | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
