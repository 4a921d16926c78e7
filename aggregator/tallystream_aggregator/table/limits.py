"""The settings of the table, its limits (rule 11), and the times at which it accepts a record (rule 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tallystream.record import TIMELY_MS
from tallystream.ulid import ulid_ms
from tallystream_aggregator.table.layouts import metric_count
from tallystream_aggregator.table.records.refusals import Refusal
from tallystream_aggregator.times import HOUR_MS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tallystream.record import Snapshot
    from tallystream_aggregator.sums import MetricId
    from tallystream_aggregator.table.state import Life

BYTES_PER_METRIC = 256
"""The bytes of names and tags that a life and an app may have for each of the metrics that they may have."""
APPS = 4
"""The limits of the table are this many times those of an app."""


@dataclass(frozen=True, slots=True)
class TableSettings:
    """The settings of the rules. Times are in milliseconds.

    `forget_after_ms`: the time after its last record at which a life's rows are deleted and only its counts are kept,
    at least 5 days.
    `short_form_every_ms`: the assumed reporting interval of a program that publishes the short form.
    `max_record_bytes`, and `max_metrics` of one record and of one life, limit an instance.
    `max_app_metrics` limits the metrics (name, type and tags) of an app. The limits in bytes, and those of all apps
    together, follow from it.
    `otlp_topics`: the topics whose records are OTLP metrics (tallystream_aggregator.otlp).
    """

    forget_after_ms: int = 7 * 24 * HOUR_MS
    short_form_every_ms: int = 60_000
    max_record_bytes: int = 1_048_576
    max_metrics: int = 10_000
    max_app_metrics: int = 1_000_000
    otlp_topics: tuple[str, ...] = ()


RECORD_SIZE = "record size"
METRICS_PER_RECORD = "metrics per record"
METRICS_PER_LIFE = "metrics per life"
BYTES_PER_LIFE = "bytes of metrics per life"
METRICS_PER_APP = "metrics per app"
BYTES_PER_APP = "bytes of metrics per app"
METRICS_PER_TABLE = "metrics per table"
BYTES_PER_TABLE = "bytes of metrics per table"

_WHAT = {
    METRICS_PER_RECORD: "that a record may have",
    METRICS_PER_LIFE: "that a life may have",
    BYTES_PER_LIFE: "bytes that the names and tags of a life may have",
    METRICS_PER_APP: "that an app may have",
    BYTES_PER_APP: "bytes that the names and tags of an app may have",
    METRICS_PER_TABLE: "that the table may have",
    BYTES_PER_TABLE: "bytes that the names and tags of the table may have",
}
_OF_APP = {METRICS_PER_APP: 1, BYTES_PER_APP: BYTES_PER_METRIC}
_OF_TABLE = {METRICS_PER_TABLE: APPS, BYTES_PER_TABLE: APPS * BYTES_PER_METRIC}
"""Limits of the numbers of metrics and of the bytes of their names and tags, as multiples of `max_app_metrics`."""


def out_of_bounds(snapshot: Snapshot, timestamp_ms: int) -> str | None:
    """Return why a record appended at `timestamp_ms` is too late or too early, or None if it is neither.

    This depends only on the record and its append time. The reporter makes the same comparison when a record is
    acknowledged, so it knows which records count.
    """
    ahead = ulid_ms(snapshot.life) - timestamp_ms
    if ahead > TIMELY_MS:
        return f"too early: the life's ULID is {ahead} ms ahead of the broker; the limit is {TIMELY_MS} ms"
    since, what = (snapshot.prev, "prev") if snapshot.prev is not None else (ulid_ms(snapshot.life), "the life's ULID")
    late = timestamp_ms - since
    if late < TIMELY_MS:
        return None
    return f"too late: appended {late} ms after {what}; the limit is {TIMELY_MS} ms"


def refuse_over_limit(limit: str, number: int, settings: TableSettings) -> Refusal:
    """Return the refusal of `number` metrics of a record that exceed a limit."""
    factor = (_OF_APP | _OF_TABLE).get(limit)
    if factor is None:
        allowed = settings.max_metrics * (BYTES_PER_METRIC if limit == BYTES_PER_LIFE else 1)
    else:
        allowed = factor * settings.max_app_metrics
    return Refusal(f"limit: {number} metrics beyond the {allowed} {_WHAT[limit]}")


class MetricQuota:
    """Counts the metrics of each app and of all apps, and their bytes, and tells when a new one exceeds a limit."""

    def __init__(self, metrics: Iterable[MetricId], settings: TableSettings) -> None:
        self._settings = settings
        self._used: dict[str | None, tuple[int, int]] = {}  # by app, and that of all apps
        for metric in metrics:
            self.add(metric)

    def exceeded_limit(self, life: Life, metric: MetricId, *, known: bool) -> str | None:
        """Return the limit that a new metric of a life exceeds, or None if it exceeds none.

        `known` tells whether another life or a forgotten sum has the metric.
        """
        size, of_life = size_of(metric), self._settings.max_metrics
        if metric_count(life) >= of_life:
            return METRICS_PER_LIFE
        if life.bytes + size > BYTES_PER_METRIC * of_life:
            return BYTES_PER_LIFE
        if known:
            return None
        added, most = (1, size), self._settings.max_app_metrics
        for of, limits in ((metric[0], _OF_APP), (None, _OF_TABLE)):
            for used, more, (limit, factor) in zip(self._used.get(of, (0, 0)), added, limits.items(), strict=True):
                if used + more > factor * most:
                    return limit
        return None

    def add(self, metric: MetricId) -> None:
        """Count a new metric."""
        self._change(metric, 1)

    def remove(self, metric: MetricId) -> None:
        """No longer count a metric."""
        self._change(metric, -1)

    def _change(self, metric: MetricId, sign: int) -> None:
        size = size_of(metric)
        for of in (metric[0], None):
            number, used = self._used.pop(of, (0, 0))
            if number + sign:
                self._used[of] = (number + sign, used + sign * size)


def size_of(metric: MetricId) -> int:
    """Return the bytes of a metric's name and tags, in UTF-8."""
    _, name, _, tags = metric
    return len("".join((name, *(text for tag in tags for text in tag))).encode())
