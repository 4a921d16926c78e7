"""The output of the table: totals, dead letters and events, and their records on the topics."""

from __future__ import annotations

import base64
import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from tallystream_aggregator import sums
from tallystream_aggregator.table.arithmetic import sketches
from tallystream_aggregator.table.arithmetic.metric_types import Totals, saturated
from tallystream_aggregator.table.decode import MAX_KEY_BYTES, Record

if TYPE_CHECKING:
    from tallystream_aggregator.table.arithmetic.partial_sums import PartialSum
    from tallystream_aggregator.table.state import MetricId

MAX_QUOTED_BYTES = 8_192
"""The most bytes that all dead letters of a record quote, which bounds memory. They have the record's offset."""

Offsets = dict[str, dict[str, int]]
"""topic → partition → the last offset included"""

_json = msgspec.json.Encoder()


def key_of(metric: MetricId) -> bytes:
    """Return the key of a metric's sum."""
    app, name, type_, tags = metric
    return sums.key(app, (name, type_, tags))


class Total(NamedTuple):
    """The absolute totals of a metric over all instances. They replace earlier ones. `ts_ms` is the table's clock.

    `overflow` tells whether a total exceeds its range and is the largest or smallest number instead. `sketch` is the
    merged sketch as JSON, None if one is missing or with `overflow`.
    """

    metric: MetricId
    totals: Totals
    lives: int
    instances: int
    ts_ms: int
    offsets: Offsets
    retired: int = 0
    overflow: bool = False
    sketch: bytes | None = None

    @classmethod
    def of(cls, metric: MetricId, partial: PartialSum, ts_ms: int, offsets: Offsets) -> Total:
        """Return the totals of a metric whose partial sums include all lives."""
        totals, overflow = saturated(partial.totals())
        counts = (partial.lives, partial.instances, ts_ms, offsets, partial.forgotten)
        merged = partial.sketch()
        if merged is None:
            return cls(metric, totals, *counts, overflow)
        sketch = None if overflow else sketches.encode(merged.encode())
        return cls(metric, totals | sketches.quantiles(merged), *counts, overflow, sketch)

    @property
    def mean(self) -> float | None:
        """The mean of a gauge over the living lives, or None if no life reports it or the sum exceeds its range."""
        total, number = self.totals.get("sum"), self.totals.get("number")
        return total / number if number and total is not None and not self.overflow else None

    def key(self) -> bytes:
        """The record's key on `metrics-agg`."""
        return key_of(self.metric)

    def value(self) -> bytes:
        """The record's value on `metrics-agg`."""
        app, name, type_, tags = self.metric
        row = sums.Sum(app=app, name=name, type=type_, tags=dict(tags), ts=self.ts_ms, offsets=self.offsets)
        for field, value in self.totals.items():
            setattr(row, field, value)
        row.mean, row.overflow = self.mean, self.overflow
        if self.sketch is not None:
            row.sketch = msgspec.Raw(self.sketch)
        row.lives, row.instances, row.retired = self.lives, self.instances, self.retired
        return sums.encode(row)


class Event(NamedTuple):
    """An annotation for a graph. `kind` is restart, tombstone, forget or limit."""

    kind: str
    app: str
    instance: str
    life: str
    ts_ms: int
    offset: tuple[str, int, int] | None = None
    detail: str = ""

    def key(self) -> bytes:
        """The record's key on `metrics-events`: a JSON array of app and instance."""
        return _json.encode([self.app, self.instance])

    def value(self) -> bytes:
        """The record's value."""
        body: dict[str, Any] = {"v": 1, "kind": self.kind, "app": self.app, "instance": self.instance}
        body |= {"life": self.life, "ts": self.ts_ms, **_position(self.offset)}
        if self.detail:
            body["detail"] = self.detail
        return _json.encode(body)


class DeadLetter(NamedTuple):
    """A record, or one metric of it (JSON text), that the table refused, and the reason.

    The value of `record` is the quoted part. The whole value has `size` bytes.
    """

    record: Record
    reason: str
    metric: str | None = None
    size: int = 0

    @classmethod
    def quoting(cls, record: Record, reason: str, metric: str | None, max_bytes: int) -> DeadLetter:
        """Return a dead letter that quotes at most `max_bytes` of the record, or of the metric."""
        value = None if record.value is None else b"" if metric is not None else record.value[:max_bytes]
        size = len(record.value or b"")
        return cls(record._replace(value=value), reason, None if metric is None else metric[:max_bytes], size)

    def key(self) -> bytes | None:
        """The record's key on `metrics-dead`: as it was read, truncated to `MAX_KEY_BYTES`."""
        return None if self.record.key is None else self.record.key[:MAX_KEY_BYTES]

    def value(self) -> bytes:
        """The record's value: reason, offset, and the metric or the record itself (in base64 if it is not text)."""
        record = self.record
        body: dict[str, Any] = {"v": 1, "reason": self.reason[:1000], "ts": record.timestamp_ms}
        body |= _position((record.topic, record.partition, record.offset))
        if self.metric is not None:
            body["metric"] = self.metric
        elif record.value is not None:
            quoted = record.value
            body["bytes"] = self.size
            if not quoted and self.size:
                return _json.encode(body)
            body["value_base64"] = base64.b64encode(quoted).decode()
            with contextlib.suppress(UnicodeDecodeError):
                body["value"] = quoted.decode()
                del body["value_base64"]
        return _json.encode(body)


def _position(offset: tuple[str, int, int] | None) -> dict[str, Any]:
    return {} if offset is None else dict(zip(("topic", "partition", "offset"), offset, strict=True))
