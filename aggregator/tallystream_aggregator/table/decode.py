"""Read one record of the topic `metrics`: a snapshot, the short form, a forget record, a tombstone, or something else.

Rule 8: what can't be read stops nothing, and one bad metric does not freeze its neighbours.
"""

from __future__ import annotations

import json
import math
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeVar, cast

import msgspec

from tallystream.record import METRIC_TYPES, Header, Histogram, LifeId, Metric, Name, ShortForm, Snapshot, Tags

if TYPE_CHECKING:
    from tallystream_aggregator.table.state import MetricId

MAX_KEY_BYTES = 1024
MAX_DEPTH = 64
"""How deep objects and lists may nest in a value: a snapshot needs four."""

T = TypeVar("T", bound=msgspec.Struct)


class Superseded(NamedTuple):
    """The records before a record that compaction left out: how many there are, and what came before them.

    That is a record that was kept, at the offset `first`, with the seq (in the short form: the value) `after`.
    """

    records: int
    after: int
    first: int


class Record(NamedTuple):
    """A record as Kafka has it. `timestamp_ms` is the broker's append time, in epoch milliseconds.

    Compaction says the highest append time up to it in its shard, `clock_ms`, and what it supersedes.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    clock_ms: int = 0
    superseded: Superseded | None = None

    @property
    def represents(self) -> int:
        """The number of records that it represents: itself, and those that it supersedes."""
        return 1 if self.superseded is None else 1 + self.superseded.records

    @property
    def clock_name(self) -> str:
        """The partition whose clock the record moves, as the table names it."""
        return _clock_name(self.topic, self.partition)


@lru_cache(maxsize=10_000)
def _clock_name(topic: str, partition: int) -> str:
    return f"{topic}:{partition}"  # asked several times for each record


class Rejected(NamedTuple):
    """One metric that can't be taken, as JSON text, and why."""

    reason: str
    metric: str


class Good(NamedTuple):
    """A snapshot, less the metrics that were rejected, and less those `beyond` the limit: how many these are."""

    snapshot: Snapshot
    rejected: tuple[Rejected, ...] = ()
    beyond: int = 0


class Forget(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """What a forget record takes out of the sums: lives of the instance in its key, or metrics.

    Without `metric`: all lives of the instance, those of `app` alone, or one `life`. With it: the metrics of this name,
    of any app, type and tags where these are not given; of `tags` a metric has these at least. Such a record is for the
    lives in the record's own partition, and the shard of its key in a table of `shards`.

    An unknown field is an error: whatever it means, without it the record could take out more than it should.
    """

    app: Name | None = None
    life: LifeId | None = None
    metric: Name | None = None
    type: str | None = None
    tags: Tags = {}
    shards: Annotated[int, msgspec.Meta(ge=1)] = 1

    def __post_init__(self) -> None:
        if self.type is not None and self.type not in _TYPES:
            raise ValueError(f"the type is not one of {', '.join(_TYPES)}")
        if self.metric is not None and self.life is not None:
            raise ValueError("it names a life and a metric")
        if self.metric is None and (self.type is not None or self.tags or self.shards != 1):
            raise ValueError("it names no metric, so type, tags and shards mean nothing")

    def has_life(self, app: str, life: str) -> bool:
        """Tell whether a life of the instance is taken out."""
        return self.app in (None, app) and self.life in (None, life)

    def has_metric(self, metric: MetricId) -> bool:
        """Tell whether a metric is taken out."""
        app, name, kind, tags = metric
        named = name == self.metric and self.app in (None, app) and self.type in (None, kind)
        return named and self.tags.items() <= dict(tags).items()

    def value(self) -> bytes:
        """Return the value of the record."""
        return msgspec.json.encode(_ForgetRecord(self))


class _ForgetRecord(msgspec.Struct):
    forget: Forget
    v: Literal[1] = 1


class Unreadable(NamedTuple):
    """A record of which nothing can be taken, and why."""

    reason: str


class _ShortForm(ShortForm):
    """The short form, with the field that tells that a record is a snapshot."""

    metrics: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_snapshots = msgspec.json.Decoder(Snapshot)
_short_forms = msgspec.json.Decoder(ShortForm)
_decode_quickly = msgspec.json.Decoder(_ShortForm).decode
_BACKSLASH = ord("\\")
_BRACKETS = re.compile(r'"(?:[^"\\]++|\\.)*+"?+|[][{}]', re.DOTALL)
_TYPES = {str(kind.__struct_config__.tag): kind for kind in METRIC_TYPES}


def read_key(key: bytes | None) -> str | Unreadable:
    """Return the instance ID in a record's key."""
    if not key:
        return Unreadable("the record has no key: it must be the instance ID")
    if len(key) > MAX_KEY_BYTES:
        return Unreadable(f"the key has {len(key)} bytes, {MAX_KEY_BYTES} at most are taken")
    try:
        instance = key.decode()
    except UnicodeDecodeError:
        return Unreadable("the key is not UTF-8")
    return Unreadable("the key contains a NUL character") if "\0" in instance else instance


def read_short_form(value: bytes) -> ShortForm | None:
    """Return the short form in a record's value, None where only `read_value` can tell.

    Most short forms are found here, in a fraction of the time.
    """
    # Half of the bytes of a valid text open brackets, at most: a short one is not nested too deep.
    if len(value) > 2 * MAX_DEPTH and value.count(b"{") + value.count(b"[") > MAX_DEPTH:
        return None
    try:
        if _BACKSLASH in value or not (value.isascii() or value.decode()):
            return None
        message = _decode_quickly(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return message if message.metrics is msgspec.UNSET else None


def read_value(value: bytes, max_metrics: int) -> Good | ShortForm | Forget | Unreadable:
    """Return what a record's value says: the same whichever of the two ways below finds it."""
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        return Unreadable(f"the value is not JSON in UTF-8: {error}")
    if b"\\u00" not in value:  # a NUL in some text, or a field's name in disguise: for the careful way
        try:
            message = Good(_snapshots.decode(value)) if b'"metrics"' in value else _short_forms.decode(value)
        except (msgspec.DecodeError, RecursionError):
            pass  # the careful way below tells what is wrong, and saves what is good
        else:
            within = isinstance(message, ShortForm) or len(message.snapshot.metrics) <= max_metrics
            if within and _is_flat(value, message):
                return message
    return _read_with_care(text, max_metrics)


def _is_flat(value: bytes, message: Good | ShortForm) -> bool:
    """Tell whether the brackets that the message does not explain are too few to nest deeper than is allowed."""
    brackets = value.count(b"{") + value.count(b"[") - 2
    if brackets >= MAX_DEPTH - 4 and isinstance(message, Good):
        brackets -= sum(2 + _brackets_of(metric) for metric in message.snapshot.metrics)
    return brackets < MAX_DEPTH - 4


def _brackets_of(metric: Metric) -> int:
    """Return how many brackets open in a metric's sketch."""
    if not isinstance(metric, Histogram) or metric.sketch is None:
        return 0
    return 1 + 2 * ((metric.sketch.positive is not None) + (metric.sketch.negative is not None))


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


def _read_with_care(text: str, max_metrics: int) -> Good | ShortForm | Forget | Unreadable:
    try:
        # The parser's own limit depends on how deep its caller's stack is; this one does not.
        _require_shallow(text)
        # The standard library's parser knows NaN and Infinity, which other reporters write: so it finds the neighbours.
        document = json.loads(text, parse_int=_parse_int)
    except ValueError as error:
        return Unreadable(f"the value is not JSON in UTF-8: {error}")
    if not isinstance(document, dict):
        return Unreadable("the value is not a JSON object")
    if "metrics" in document:
        return _snapshot(document, max_metrics)
    if "name" in document and "value" in document:
        try:
            return _convert(document, ShortForm)
        except (msgspec.ValidationError, ValueError) as error:
            return Unreadable(f"short form: {error}")
    return _forget(document)


def _forget(document: dict[str, Any]) -> Forget | Unreadable:
    if "forget" not in document:
        return Unreadable("the value is neither a snapshot (metrics) nor the short form (name, value)")
    try:
        return _convert(document, _ForgetRecord).forget
    except (msgspec.ValidationError, ValueError) as error:
        return Unreadable(f"forget: {error}")


def _parse_int(digits: str) -> int | float:
    # Beyond the range of floats nothing can be summed: infinity, which is refused, and no time spent on the digits.
    return int(digits) if len(digits) <= 400 else math.copysign(math.inf, -1 if digits[0] == "-" else 1)


def _snapshot(document: dict[str, Any], max_metrics: int) -> Good | Unreadable:
    metrics = document["metrics"]
    if not isinstance(metrics, list):
        return Unreadable("snapshot: metrics is not a list")
    try:
        header = _convert(document, Header)
    except (msgspec.ValidationError, ValueError) as error:
        return Unreadable(f"snapshot: {error}")
    good: list[Metric] = []
    rejected = []
    for item in metrics[:max_metrics]:
        try:
            good.append(_metric(item))
        except (msgspec.ValidationError, ValueError) as error:
            rejected.append(Rejected(str(error), json.dumps(item)))
    fields = {name: getattr(header, name) for name in Header.__struct_fields__}
    return Good(Snapshot(**fields, metrics=good), tuple(rejected), max(0, len(metrics) - max_metrics))


def _metric(item: object) -> Metric:
    kind = item.get("type") if isinstance(item, dict) else None
    if not isinstance(item, dict) or not isinstance(kind, str) or kind not in _TYPES:
        raise ValueError(f"the type is not one of {', '.join(_TYPES)}")
    return cast("Metric", _convert(item, _TYPES[kind]))


def _convert(document: dict[str, Any], to: type[T]) -> T:
    """Return `document` as the struct `to`; fields that it does not have are ignored, whatever they hold."""
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
