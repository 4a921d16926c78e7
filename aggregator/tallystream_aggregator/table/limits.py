"""The settings of the table and its limits: rule 11."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tallystream.record import BOUNDS
from tallystream_aggregator.table.layouts import text_bytes
from tallystream_aggregator.table.records.refusals import Refusal
from tallystream_aggregator.times import HOUR_MS

if TYPE_CHECKING:
    from tallystream_aggregator.sums import MetricId

MAX_SHARDS = 1024
"""The most shards of a table."""

BYTES_PER_METRIC = 256
"""The bytes of names and tags that a life may have for each of the metrics that it may have."""

COUNTER = "counter"
METRIC_BYTES = {COUNTER: 1_600}
OTHER_METRIC_BYTES = 4_000
TAG_BYTES = 500
TEXT_FACTOR = 4
"""What a metric counts in the table, by its type; each of its tags; and each byte of its name and tags."""

BOUND_BYTES = 16
"""What a bound of explicit buckets counts besides: in the metric, and in each row."""

ROW_BYTES = {COUNTER: 200}
OTHER_ROW_BYTES = 600
"""What each life that has a metric counts for it, by its type. A value that is left out counts as another row."""

LIFE_BYTES = 2_000
PART_BYTES = 400
"""What a life counts besides its texts, and each of its parts."""

APP_QUARTERS = 3
"""How many quarters of the table an app may have."""


@dataclass(frozen=True, slots=True)
class TableSettings:
    """The settings of the rules. Times are in milliseconds.

    `forget_after_ms`: the time after its last record at which a life's rows are deleted and only its counts are kept,
    at least 5 days.
    `short_form_every_ms`: the assumed reporting interval of a program that publishes the short form.
    `max_record_bytes`, and `max_metrics` of one record and of one life, limit an instance.
    `max_table_bytes` limits what a shard has in memory: its lives, and its metrics with their rows (`TableSize`). An
    app may have three quarters of it.
    `otlp_topics`: the topics whose records are OTLP metrics (tallystream_aggregator.otlp).
    """

    forget_after_ms: int = 7 * 24 * HOUR_MS
    short_form_every_ms: int = 60_000
    max_record_bytes: int = 1_048_576
    max_metrics: int = 10_000
    max_table_bytes: int = 2 << 30
    otlp_topics: tuple[str, ...] = ()


RECORD_SIZE = "record size"
METRICS_PER_RECORD = "metrics per record"
METRICS_PER_LIFE = "metrics per life"
BYTES_PER_LIFE = "bytes of metrics per life"
BYTES_PER_APP = "bytes per app"
BYTES_PER_TABLE = "bytes per table"

_WHAT = {
    METRICS_PER_RECORD: "that a record may have",
    METRICS_PER_LIFE: "that a life may have",
    BYTES_PER_LIFE: "bytes that the names and tags of a life may have",
    BYTES_PER_APP: "bytes that an app may have in the table",
    BYTES_PER_TABLE: "bytes that the table may have",
}


def refuse_over_limit(limit: str, what: str, settings: TableSettings) -> Refusal:
    """Return the refusal of `what` of a record, which exceeds a limit."""
    allowed = {
        BYTES_PER_LIFE: settings.max_metrics * BYTES_PER_METRIC,
        BYTES_PER_APP: _app_bytes(settings),
        BYTES_PER_TABLE: settings.max_table_bytes,
    }.get(limit, settings.max_metrics)
    return Refusal(f"limit: {what} beyond the {allowed} {_WHAT[limit]}")


def _app_bytes(settings: TableSettings) -> int:
    return settings.max_table_bytes * APP_QUARTERS // 4


class TableSize:
    """Counts the bytes of each app and of all apps, and tells what more would exceed.

    The bytes are those of the lives, metrics and rows that the table has, whatever form they are in. So they are the
    same in a table that is made again from its rows. They are about the memory that the worst form takes.
    """

    def __init__(self, settings: TableSettings) -> None:
        self.settings = settings
        self.was_full = False
        self._used: dict[str | None, int] = {}  # by app, and that of all apps

    def take(self, app: str, more: int) -> str | None:
        """Count `more` bytes of an app and return None, or return the limit that they exceed."""
        of_app, of_all = self._used.get(app, 0) + more, self._used.get(None, 0) + more
        limit = None
        if of_app > _app_bytes(self.settings):
            limit = BYTES_PER_APP
        elif of_all > self.settings.max_table_bytes:
            limit = BYTES_PER_TABLE
        else:
            self._used[app], self._used[None] = of_app, of_all
        self.was_full |= limit is not None
        return limit

    def add(self, app: str, more: int) -> None:
        """Count `more` bytes of an app; no longer count them if they are negative."""
        for of in (app, None):
            used = self._used.pop(of, 0) + more
            if used:
                self._used[of] = used


def life_limit(metrics: int, text: int, settings: TableSettings) -> str | None:
    """Return the limit of a life that one more metric than `metrics` exceeds, or None.

    `text` are the bytes of the names and tags of all of them.
    """
    if metrics >= settings.max_metrics:
        return METRICS_PER_LIFE
    return BYTES_PER_LIFE if text > BYTES_PER_METRIC * settings.max_metrics else None


def size_of_metric(metric: MetricId) -> int:
    """Return the bytes that a metric counts in the table, however many lives have it."""
    of_type = METRIC_BYTES.get(metric[2], OTHER_METRIC_BYTES)
    return of_type + _bound_bytes(metric) + TAG_BYTES * len(metric[3]) + TEXT_FACTOR * text_bytes(metric)


def size_of_row(metric: MetricId) -> int:
    """Return the bytes that a metric counts for each life that has it."""
    return ROW_BYTES.get(metric[2], OTHER_ROW_BYTES) + _bound_bytes(metric)


def _bound_bytes(metric: MetricId) -> int:
    return BOUND_BYTES * int(dict(metric[3])[BOUNDS].partition("-")[0]) if metric[2] == "buckets" else 0


def size_of_life(instance: str, app: str, parts: int) -> int:
    """Return the bytes that a life counts without its rows."""
    return LIFE_BYTES + PART_BYTES * parts + TEXT_FACTOR * len((instance + app).encode())
