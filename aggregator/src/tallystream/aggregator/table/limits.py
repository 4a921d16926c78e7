"""The limits (rule 11), and when a record may come (rule 3): verdicts on a record by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream.reporter.ulid import ulid_ms

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tallystream.aggregator.table.settings import TableSettings
    from tallystream.aggregator.table.state import MetricId
    from tallystream.reporter.record import Snapshot

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


def untimely(snapshot: Snapshot, timestamp_ms: int) -> str | None:
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


def beyond(limit: str, number: int, settings: TableSettings) -> str:
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
