"""The table's settings, its limits (rule 11), and when a record may come (rule 3): verdicts on a record by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tallystream.ulid import ulid_ms

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tallystream.record import Snapshot
    from tallystream_aggregator.table.state import MetricId

HOUR_MS = 3_600_000

BYTES_PER_METRIC = 256
"""Bytes of names and tags that an app may have for each metric that it may have."""
APPS = 4
"""The table has room for so many apps that are as large as one may be."""


@dataclass(frozen=True, slots=True)
class TableSettings:
    """What may be chosen of the rules; times in milliseconds.

    `retire_after_ms`: how long after its last record a silent life moves from memory to disk; it decides nothing else.
    `forget_after_ms`: how long after that record its rows are dropped and only its counts are kept; at least 7 days.
    `short_form_every_ms`: the interval that is assumed of a program that publishes the short form, which does not say.
    `max_record_bytes` and `max_metrics` (of one record, and of one life) are the limits on an instance.
    `max_app_metrics` is how many metrics (name, type and tags) an app may have; what they take in bytes, and what all
    apps together may have, follows from it.
    """

    retire_after_ms: int = 24 * HOUR_MS
    forget_after_ms: int = 30 * 24 * HOUR_MS
    short_form_every_ms: int = 60_000
    max_record_bytes: int = 1_048_576
    max_metrics: int = 10_000
    max_app_metrics: int = 1_000_000

    @property
    def max_app_bytes(self) -> int:
        """How many bytes of names and tags the metrics of an app may have."""
        return BYTES_PER_METRIC * self.max_app_metrics

    @property
    def max_table_metrics(self) -> int:
        """How many metrics all apps together may have, in each shard."""
        return APPS * self.max_app_metrics

    @property
    def max_table_bytes(self) -> int:
        """How many bytes of names and tags the metrics of all apps may have, in each shard."""
        return APPS * self.max_app_bytes


RECORD_SIZE = "record size"
METRICS_PER_RECORD = "metrics per record"
METRICS_PER_LIFE = "metrics per life"
METRICS_PER_APP = "metrics per app"
BYTES_PER_APP = "bytes of metrics per app"
METRICS_PER_TABLE = "metrics per table"
BYTES_PER_TABLE = "bytes of metrics per table"

_ALLOWED = {
    METRICS_PER_RECORD: ("max_metrics", "that a record may have"),
    METRICS_PER_LIFE: ("max_metrics", "that a life may have"),
    METRICS_PER_APP: ("max_app_metrics", "that an app may have"),
    BYTES_PER_APP: ("max_app_bytes", "bytes that the names and tags of an app may have"),
    METRICS_PER_TABLE: ("max_table_metrics", "that the table may have"),
    BYTES_PER_TABLE: ("max_table_bytes", "bytes that the names and tags of the table may have"),
}

LETTERS = 10
"""Dead letters about single metrics of one record, at most: one more has the number of the others."""


DAY_MS = 24 * 3_600_000
"""How long after its `prev`, and how far from its life's ULID, a record may be appended: part of the contract."""


def out_of_bounds(snapshot: Snapshot, timestamp_ms: int) -> str | None:
    """Return why a record appended at `timestamp_ms` comes too late or too early, None when it does not.

    The record alone decides, and its own append time: the reporter makes the same comparison when a record is
    acknowledged, so both know what counts.
    """
    ahead = ulid_ms(snapshot.life) - timestamp_ms
    if ahead > DAY_MS:
        return f"too early: the life's ULID is {ahead} ms ahead of the broker, {DAY_MS} ms at most are taken"
    since, what = (snapshot.prev, "prev") if snapshot.prev is not None else (ulid_ms(snapshot.life), "the life's ULID")
    late = timestamp_ms - since
    if late < DAY_MS:
        return None
    return f"too late: appended {late} ms after {what}, less than {DAY_MS} ms are taken"


def letters(refused: Sequence[tuple[str, str | None]]) -> Sequence[tuple[str, str | None]]:
    """Return the reasons that become dead letters of one record; in each, None stands for the whole record."""
    metrics = [one for one in refused if one[1] is not None]
    if len(metrics) <= LETTERS:
        return refused
    rest = (f"limit: {len(metrics) - LETTERS} more metrics of this record are refused", None)
    return [*metrics[:LETTERS], rest, *(one for one in refused if one[1] is None)]


def over_limit(limit: str, number: int, settings: TableSettings) -> str:
    """Return why `number` metrics of a record are refused."""
    setting, what = _ALLOWED[limit]
    return f"limit: {number} metrics beyond the {getattr(settings, setting)} {what}"


class Room:
    """How many metrics each app has, and all together, in numbers and in bytes: whether there is room for a new one."""

    def __init__(self, metrics: Iterable[MetricId], settings: TableSettings) -> None:
        self._settings = settings
        self._apps: dict[str, tuple[int, int]] = {}
        self._all = (0, 0)
        for metric in metrics:
            self.take(metric)

    def limit(self, rows: int, metric: MetricId, *, known: bool) -> str | None:
        """Return the limit that one more metric of a life with so many `rows` exceeds, None where there is room for it.

        `known` tells whether another life has it, or had it.
        """
        if rows >= self._settings.max_metrics:
            return METRICS_PER_LIFE
        return None if known else self._limit_of_new(metric)

    def _limit_of_new(self, metric: MetricId) -> str | None:
        most, size = self._settings, _size(metric)
        number, taken = self._apps.get(metric[0], (0, 0))
        if number >= most.max_app_metrics:
            return METRICS_PER_APP
        if taken + size > most.max_app_bytes:
            return BYTES_PER_APP
        number, taken = self._all
        if number >= most.max_table_metrics:
            return METRICS_PER_TABLE
        return BYTES_PER_TABLE if taken + size > most.max_table_bytes else None

    def take(self, metric: MetricId) -> None:
        """Count a new metric."""
        size = _size(metric)
        number, taken = self._apps.get(metric[0], (0, 0))
        self._apps[metric[0]] = (number + 1, taken + size)
        self._all = (self._all[0] + 1, self._all[1] + size)


def _size(metric: MetricId) -> int:
    """Return the bytes of a metric's name and tags, in UTF-8."""
    _, name, _, tags = metric
    return len("".join((name, *(text for tag in tags for text in tag))).encode())
