"""Decode a record of `metrics`: a snapshot, the short form, a forget or clock record, or something unreadable.

Rule 8: an unreadable record, or an unreadable metric of a record, is refused by itself. Everything else counts.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeVar, cast

import msgspec

from tallystream.record import CLASSES, Header, Histogram, LifeId, Metric, Name, ShortForm, Snapshot, Tags
from tallystream_aggregator.counters import SnapshotMetrics
from tallystream_aggregator.table.records.refusals import RecordRefusals, Refusal

if TYPE_CHECKING:
    from tallystream_aggregator.sums import MetricId

CLOCK_KEY = b"tallystream-clock"
"""The key of clock records, by which time passes in a partition though no instance publishes there.

A clock record has the wall clock of the aggregator that appended it. Every shard reads it. No instance has this ID.
"""

NO_CLOCK_RECORD = 'clock: the value is not {"v":1,"wall_ms":N}'

MAX_KEY_BYTES = 1024
MAX_DEPTH = 64
"""How deep objects and lists may nest in a value: a snapshot needs four."""

T = TypeVar("T", bound=msgspec.Struct)


class Record(NamedTuple):
    """A record as Kafka has it. `timestamp_ms` is the broker's append time, in epoch milliseconds.

    `clock_ms` is the time of its partition: the highest append time up to this record.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    clock_ms: int = 0

    @property
    def location(self) -> tuple[str, int, int]:
        """Its topic, partition and offset."""
        return self.topic, self.partition, self.offset

    @property
    def partition_name(self) -> str:
        """The partition as the table names it, as in "metrics:0". All lives share the text."""
        return _partition_name(self.topic, self.partition)


@lru_cache(maxsize=10_000)
def _partition_name(topic: str, partition: int) -> str:
    return f"{topic}:{partition}"


def shard_of(key: bytes | None, shards: int) -> int:
    """Return the shard of the records with this key, by CRC-32."""
    return zlib.crc32(key or b"") % shards


class DecodedSnapshot(msgspec.Struct, gc=False):
    """A snapshot and its metrics without the rejected ones and those over the limit, of which there are `over_limit`.

    `rejected` are the first of the rejected metrics. There are `more_rejected` besides. `value` is that of the record
    if it has exactly these metrics. The values of a baseline are left out of the sums: they are from before its stream
    of OTLP began.
    """

    snapshot: Snapshot
    metrics: SnapshotMetrics
    rejected: tuple[Refusal, ...] = ()
    over_limit: int = 0
    more_rejected: int = 0
    value: bytes | None = None
    is_baseline: bool = False


class Forget(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """What a forget record removes from the sums: lives of the instance in its key, or metrics.

    Without `metric`, it removes all lives of the instance, those of `app`, or one `life`. With `metric`, it removes the
    metrics with this name, and with this app, type and tags if they are given. A metric may have more tags. Such a
    record applies to the lives of its own partition, in the shard of its key of a table with `shards`.

    An unknown field is an error: it may narrow what the record removes.
    """

    app: Name | None = None
    life: LifeId | None = None
    metric: Name | None = None
    type: str | None = None
    tags: Tags = {}
    shards: Annotated[int, msgspec.Meta(ge=1)] = 1

    def __post_init__(self) -> None:
        if self.type is not None and self.type not in CLASSES:
            raise ValueError(f"the type is not one of {', '.join(CLASSES)}")
        if self.metric is not None and self.life is not None:
            raise ValueError("it names a life and a metric")
        if self.metric is None and (self.type is not None or self.tags or self.shards != 1):
            raise ValueError("it names no metric, so type, tags and shards mean nothing")

    def has_life(self, app: str, life: str) -> bool:
        """Tell whether the record removes this life of the instance."""
        return self.app in (None, app) and self.life in (None, life)

    def has_metric(self, metric: MetricId) -> bool:
        """Tell whether the record removes this metric."""
        app, name, kind, tags = metric
        named = name == self.metric and self.app in (None, app) and self.type in (None, kind)
        return named and self.tags.items() <= dict(tags).items()

    def value(self) -> bytes:
        """Return the value of the record."""
        return msgspec.json.encode(_ForgetRecord(self))


Message = DecodedSnapshot | ShortForm | Forget | Refusal
"""The content of a record's value, or why it is refused."""


class _ForgetRecord(msgspec.Struct):
    forget: Forget
    v: Literal[1] = 1


class _ShortForm(ShortForm):
    """The short form, with the field that only a snapshot has."""

    metrics: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_CLOCK = re.compile(rb'\{"v":1,"wall_ms":(0|[1-9][0-9]{0,14})\}')
_snapshots = msgspec.json.Decoder(Snapshot)
_short_forms = msgspec.json.Decoder(ShortForm)
_decode_quickly = msgspec.json.Decoder(_ShortForm).decode
_BACKSLASH = ord("\\")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[{"))
_BRACKETS = re.compile(r'"(?:[^"\\]++|\\.)*+"?+|[][{}]', re.DOTALL)


def read_key(key: bytes | None) -> str | Refusal:
    """Return the instance ID in a record's key."""
    if not key:
        return Refusal("the record has no key: it must be the instance ID")
    if len(key) > MAX_KEY_BYTES:
        return Refusal(f"the key has {len(key)} bytes; the limit is {MAX_KEY_BYTES}")
    try:
        instance = key.decode()
    except UnicodeDecodeError:
        return Refusal("the key is not UTF-8")
    return Refusal("the key contains a NUL character") if "\0" in instance else instance


def clock_value(wall_ms: int) -> bytes:
    """Return the value of a clock record. `wall_ms` is in epoch ms."""
    return b'{"v":1,"wall_ms":%d}' % wall_ms


def read_clock(value: bytes | None) -> int | None:
    """Return the wall clock in a clock record, in epoch ms, or None if the value is anything else."""
    found = None if value is None else _CLOCK.fullmatch(value)
    return None if found is None else int(found[1])


def read_short_form(value: bytes) -> ShortForm | None:
    """Return the short form in a record's value, or None if only `read_value` can decode it.

    It decodes most short forms, in a fraction of the time.
    """
    # At most half of the bytes of a valid text open brackets, so a short text is not nested too deep.
    if len(value) > 2 * MAX_DEPTH and (b'"metrics"' in value or _brackets(value) > MAX_DEPTH):
        return None
    try:
        if _BACKSLASH in value or not (value.isascii() or value.decode()):
            return None
        message = _decode_quickly(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return message if message.metrics is msgspec.UNSET else None


def read_value(value: bytes, max_metrics: int) -> Message:
    """Return the content of a record's value. A fast decoder is tried first, and gives the same result."""
    try:
        text = None if value.isascii() else value.decode()
    except UnicodeDecodeError as error:
        return Refusal(f"the value is not JSON in UTF-8: {error}")
    # `\u00` may be a NUL, or an escaped field name: for the lenient decoder. A single byte is found much faster.
    if _BACKSLASH not in value or b"\\u00" not in value:
        try:
            message: DecodedSnapshot | ShortForm
            if b'"metrics"' in value:
                snapshot = _snapshots.decode(value)
                message = DecodedSnapshot(snapshot, snapshot.metrics, value=value)
            else:
                message = _short_forms.decode(value)
        except (msgspec.DecodeError, RecursionError):
            pass  # the lenient decoder finds the reason, and the metrics that are good
        else:
            is_within_limit = isinstance(message, ShortForm) or len(message.metrics) <= max_metrics
            if is_within_limit and _is_shallow(value, message):
                return message
    return _read_leniently(value.decode() if text is None else text, max_metrics)


def _is_shallow(value: bytes, message: DecodedSnapshot | ShortForm) -> bool:
    """Tell whether the message has too few brackets, besides those of its known fields, to be nested too deep."""
    brackets = _brackets(value) - 2
    if brackets >= MAX_DEPTH - 4 and isinstance(message, DecodedSnapshot):
        brackets -= 2 * len(message.metrics)
        if brackets >= MAX_DEPTH - 4:  # few snapshots have sketches
            brackets -= sum(map(_brackets_of_sketch, message.metrics))
    return brackets < MAX_DEPTH - 4


def _brackets(value: bytes) -> int:
    """Return how many brackets open in a text."""
    return len(value.translate(None, _NO_BRACKETS))


def _brackets_of_sketch(metric: Metric) -> int:
    """Return how many brackets open in a metric's sketch."""
    if not isinstance(metric, Histogram) or metric.sketch is None:
        return 0
    return 1 + sum(1 + len(runs) for runs in (metric.sketch.positive, metric.sketch.negative))


def _require_shallow(text: str) -> None:
    depth = 0
    for found in _BRACKETS.finditer(text):
        bracket = found.group()
        if bracket in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise ValueError(f"it is nested deeper than {MAX_DEPTH}")
        elif bracket in "]}":
            depth -= 1


def _read_leniently(text: str, max_metrics: int) -> Message:
    try:
        # The parser's own limit depends on the depth of the caller's stack. This one does not.
        _require_shallow(text)
        # Other reporters write NaN and Infinity. The standard library's parser reads them, so only that metric is lost.
        document = json.loads(text, parse_int=_parse_int)
    except ValueError as error:
        return Refusal(f"the value is not JSON in UTF-8: {error}")
    if not isinstance(document, dict):
        return Refusal("the value is not a JSON object")
    if "metrics" in document:
        return _snapshot(document, max_metrics)
    if "name" in document and "value" in document:
        try:
            return _convert(document, ShortForm)
        except (msgspec.ValidationError, ValueError) as error:
            return Refusal(f"short form: {error}")
    return _forget(document)


def _forget(document: dict[str, Any]) -> Forget | Refusal:
    if "forget" not in document:
        return Refusal("the value is neither a snapshot (metrics) nor the short form (name, value)")
    try:
        return _convert(document, _ForgetRecord).forget
    except (msgspec.ValidationError, ValueError) as error:
        return Refusal(f"forget: {error}")


def _parse_int(digits: str) -> int:
    # A number that is far beyond the range of floats stands for all longer ones, which saves the time to parse them.
    return int(digits) if len(digits) <= 400 else int(digits[:2] + "0" * 400)


def _snapshot(document: dict[str, Any], max_metrics: int) -> DecodedSnapshot | Refusal:
    metrics = document["metrics"]
    if not isinstance(metrics, list):
        return Refusal("snapshot: metrics is not a list")
    try:
        header = _convert(document, Header)
    except (msgspec.ValidationError, ValueError) as error:
        return Refusal(f"snapshot: {error}")
    good: list[Metric] = []
    rejected = RecordRefusals()
    for item in metrics[:max_metrics]:
        try:
            good.append(_metric(item))
        except (msgspec.ValidationError, ValueError) as error:
            rejected.add_metric(error, partial(json.dumps, item))
    fields = {name: getattr(header, name) for name in Header.__struct_fields__}
    over_limit = max(0, len(metrics) - max_metrics)
    snapshot = Snapshot(**fields, metrics=good)
    return DecodedSnapshot(snapshot, good, tuple(rejected.first), over_limit, rejected.more_metrics)


def _metric(item: object) -> Metric:
    kind = item.get("type") if isinstance(item, dict) else None
    if not isinstance(item, dict) or not isinstance(kind, str) or kind not in CLASSES:
        raise ValueError(f"the type is not one of {', '.join(CLASSES)}")
    return cast("Metric", _convert(item, CLASSES[kind]))


def _convert(document: dict[str, Any], to: type[T]) -> T:
    """Return `document` as the struct `to`. Unknown fields are ignored."""
    known = {name: document[name] for name in to.__struct_fields__ if name in document}
    _require_storable(known)
    return msgspec.convert(known, to)


def _require_storable(item: object) -> None:
    if isinstance(item, dict):
        for key, value in item.items():
            _require_storable(key)
            _require_storable(value)
    elif isinstance(item, str):
        if "\0" in item:
            raise ValueError("a text contains a NUL character")
        if not item.isascii() and any("\ud800" <= character <= "\udfff" for character in item):
            raise ValueError("a text contains half of a surrogate pair")
    elif isinstance(item, float) and not math.isfinite(item):
        raise ValueError(f"{item} is not a number that can be summed")
