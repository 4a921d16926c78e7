"""The dead letters and events of the table, and their records on the topics."""

from __future__ import annotations

import base64
import contextlib
from typing import Any, NamedTuple

import msgspec

from tallystream_aggregator.table.records.decode import MAX_KEY_BYTES, Record

MAX_QUOTED_BYTES = 8_192
"""The most bytes that all dead letters of a record quote, which bounds memory. They have the record's offset."""

_json = msgspec.json.Encoder()


class Event(msgspec.Struct, omit_defaults=True, order=True, frozen=True):
    """An annotation for a graph: a row of `metrics-events`. `kind` is restart, tombstone, forget or limit.

    `ts` is the clock of the partition, in epoch ms, at the record that caused it.
    """

    kind: str
    app: str
    instance: str
    life: str
    ts: int
    topic: str
    partition: int
    offset: int
    detail: str = ""

    def key(self) -> bytes:
        """The record's key on `metrics-events`: a JSON array of app and instance."""
        return _json.encode([self.app, self.instance])

    def value(self) -> bytes:
        """The record's value."""
        return b'{"v":1,' + _json.encode(self)[1:]


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
        value = None if record.value is None else b"" if metric is not None else _cut(record.value, max_bytes)
        text = None if metric is None else _cut(metric.encode(), max_bytes).decode()
        return cls(record._replace(value=value), reason, text, len(record.value or b""))

    def key(self) -> bytes | None:
        """The record's key on `metrics-dead`: as it was read, truncated to `MAX_KEY_BYTES`."""
        return None if self.record.key is None else self.record.key[:MAX_KEY_BYTES]

    def value(self) -> bytes:
        """The record's value: reason, offset, and the metric or the record itself (in base64 if it is not text)."""
        record = self.record
        body: dict[str, Any] = {"v": 1, "reason": self.reason[:1000], "ts": record.timestamp_ms}
        body |= {"topic": record.topic, "partition": record.partition, "offset": record.offset}
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


def _cut(text: bytes, most: int) -> bytes:
    """Return at most so many bytes of a text, without a part of a character: the next one begins there."""
    ends = (at for at in range(most, max(most - 4, 0), -1) if at >= len(text) or text[at] & 0xC0 != 0x80)
    return text[: next(ends, most)]
