"""Another reader of records than the table's, as in docs/record.md, on the standard library's JSON."""

from __future__ import annotations

import hashlib
import json
import math
import re
import struct
from collections.abc import Callable
from itertools import pairwise
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from tallystream_aggregator.verify.sketches import number_of

Identity = tuple[str, str, str, tuple[tuple[str, str], ...]]
"""(app, type, name, sorted tags). Each has one sum."""

MAX_INT64 = 2**63 - 1
MAX_DEPTH = 64
_NO_BRACKETS = re.compile(r'"(?:[^"\\]++|\\.)*+"?+|[^"\[\]{}]++', re.DOTALL)
"""Matches strings, also a truncated one, and everything else except brackets. Possessive, so it takes linear time."""

_TEXT = r"\A[^\x00\ud800-\udfff]*\Z"
"""Matches a text without NUL and surrogates."""

Count = Annotated[int, Meta(ge=0, le=MAX_INT64)]
Number = Annotated[int, Meta(ge=-(2**63), le=MAX_INT64)] | float
Statistic = int | float | None
"""A statistic of the instance. It is in no sum, so a whole number has no bounds."""

Name = Annotated[str, Meta(min_length=1, max_length=512, pattern=_TEXT)]
Life = Annotated[str, Meta(pattern=r"\A[0-7][0-9A-HJKMNP-TV-Z]{25}\Z")]
Kind = Literal["counter", "float_counter", "updown", "gauge", "meter", "histogram", "timer", "buckets", "position"]
_TagName = Annotated[str, Meta(min_length=1, max_length=128, pattern=_TEXT)]
_TagValue = Annotated[str, Meta(max_length=512, pattern=_TEXT)]
Tags = Annotated[dict[_TagName, _TagValue], Meta(max_length=32)]

RATES = ("mean_rate", "m1_rate", "m5_rate", "m15_rate")
STATISTICS = ("mean", "stddev", "p50", "p75", "p95", "p98", "p99", "p999")


class Run(msgspec.Struct):
    """Consecutive buckets from the index `offset` on. Each count has `width` bytes."""

    offset: Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
    counts: bytes
    width: Literal[1, 2, 4, 8] = 1


class Sketch(msgspec.Struct):
    """A sketch as in a record: the buckets of both signs, and the number of zeros."""

    scale: Annotated[int, Meta(ge=-10, le=20)]
    zero_count: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    positive: list[Run] = []
    negative: list[Run] = []


_RATED = [(name, Number, 0) for name in RATES]
_DISTRIBUTION = [
    ("count", Count),
    *((name, Number | None, None) for name in ("sum", "min", "max")),
    ("sketch", Sketch | None, None),
    *((name, Statistic, None) for name in STATISTICS),
]
FIELDS: dict[str, list[tuple[Any, ...]]] = {
    "counter": [("count", Count)],
    "float_counter": [("sum", Annotated[int, Meta(ge=0, le=MAX_INT64)] | Annotated[float, Meta(ge=0)])],
    "updown": [("value", Number)],
    "gauge": [("value", Number)],
    "meter": [("count", Count), *_RATED],
    "histogram": _DISTRIBUTION,
    "timer": [*_DISTRIBUTION, *_RATED],
    "buckets": [("count", Count), ("bounds", bytes), ("counts", bytes)],
    "position": [("start", Count), ("position", Count)],
}
"""The fields of each type: the name, the type of the value, and the default of one that may be absent."""

VALUES: dict[str, Callable[..., Values]] = {
    kind: msgspec.defstruct(kind, fields, namespace={"kind": kind}, kw_only=True) for kind, fields in FIELDS.items()
}
"""The class of each type's values."""

Values = Any


class Header(msgspec.Struct, kw_only=True):
    """A snapshot without its metrics. `prev` is in epoch ms. One not `complete` may lack metrics of its part."""

    v: Literal[1] = 1
    app: Name
    life: Life
    part: Count
    seq: Annotated[int, Meta(ge=1, le=MAX_INT64)]
    prev: Count | None = None
    ts: Count
    every_ms: Annotated[int, Meta(ge=10, le=3_600_000)]
    final: bool
    complete: bool = True


class Snapshot(Header):
    """A snapshot. `metrics` has each metric in order, or the reason why it is refused.

    `over_limit` tells whether there were more metrics than a record may have.
    """

    metrics: list[Metric | RejectedError]
    over_limit: bool = False


class _Named(msgspec.Struct):
    name: Name
    tags: Tags = {}


class _ShortForm(_Named, kw_only=True):
    value: Count


class RejectedError(ValueError):
    """A record or a metric that is refused. The text gives the reason."""


class Metric(NamedTuple):
    """One valid metric."""

    identity: Identity
    values: Values


class Forget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A forget record: it removes lives of its instance, or metrics with a name. None matches any value."""

    app: Name | None = None
    life: Life | None = None
    metric: Name | None = None
    type: Kind | None = None
    tags: Tags = {}
    shards: Annotated[int, Meta(ge=1, le=MAX_INT64)] = 1


def read(value: bytes, max_metrics: int) -> Snapshot | Metric | Forget:
    """Return the snapshot, the counter of the short form, or the forget record in `value`.

    Raises:
        RejectedError: the whole record is refused.
    """
    content = _json(value)
    if not isinstance(content, dict):
        raise RejectedError("not a JSON object")
    try:
        if "metrics" in content:
            return _snapshot(content, max_metrics)
        if "forget" in content and not ("name" in content and "value" in content):
            return _forget(content)
        counter = msgspec.convert(content, _ShortForm)
    except msgspec.ValidationError as error:
        raise RejectedError(str(error)) from error
    return Metric(("default", "counter", counter.name, _sorted(counter.tags)), VALUES["counter"](count=counter.value))


def _snapshot(content: dict[str, Any], max_metrics: int) -> Snapshot:
    listed = content["metrics"]
    if not isinstance(listed, list):
        raise RejectedError("metrics is not a list")
    found = msgspec.convert({name: content[name] for name in Header.__struct_fields__ if name in content}, Header)
    metrics = [_metric_or_reason(found.app, one) for one in listed[:max_metrics]]
    header = {name: getattr(found, name) for name in Header.__struct_fields__}
    return Snapshot(**header, metrics=metrics, over_limit=len(listed) > max_metrics)


def _forget(content: dict[str, Any]) -> Forget:
    if content.get("v", 1) != 1 or isinstance(content.get("v"), (bool, float)):
        raise RejectedError("another version")
    found = msgspec.convert(content["forget"], Forget)
    of_metrics = found.type is not None or found.tags or found.shards != 1
    if (found.life is not None and found.metric is not None) or (of_metrics and found.metric is None):
        raise RejectedError("forget: fields that do not go together")
    return found


def _json(value: bytes) -> Any:
    try:
        text = value.decode("utf-8")
        if value.count(b"[") + value.count(b"{") > MAX_DEPTH:
            _require_shallow(text)
        return json.loads(text, parse_int=_whole, parse_float=_fraction, parse_constant=_fraction)
    except ValueError as error:
        raise RejectedError("not JSON in UTF-8") from error


def _require_shallow(text: str) -> None:
    depth = 0
    for bracket in _NO_BRACKETS.sub("", text):
        depth += 1 if bracket in "[{" else -1
        if depth > MAX_DEPTH:
            raise RejectedError("nested too deep")


_NO_NUMBER, _HUGE = object(), object()
"""What is no number, and a whole number beyond the range of floats, which is one only in a statistic."""


def _whole(digits: str) -> Any:
    """Return a whole number, one beyond 64 bits as the nearest float."""
    if len(digits) <= 20 and -(2**63) <= (number := int(digits)) <= MAX_INT64:
        return number
    return _HUGE if (found := _fraction(digits)) is _NO_NUMBER else found


def _fraction(digits: str) -> Any:
    return found if math.isfinite(found := float(digits)) else _NO_NUMBER


def _metric_or_reason(app: str, content: Any) -> Metric | RejectedError:
    try:
        return _metric(app, content)
    except ValueError as error:  # also those of msgspec
        return RejectedError(str(error))


def _metric(app: str, content: Any) -> Metric:
    named, kind = msgspec.convert(content, _Named), content.get("type")
    if not isinstance(kind, str) or kind not in FIELDS:
        raise RejectedError("no metric of a known type")
    known = {name: content[name] for name, *_ in FIELDS[kind] if name in content}
    sketch = known.pop("sketch", None)
    numbers = {name: number for name, number in known.items() if not (name in STATISTICS and number is _HUGE)}
    values = msgspec.convert(numbers, VALUES[kind])
    if sketch is not None:
        values.sketch = msgspec.convert(sketch, Sketch)
    require_valid(values)
    if kind == "buckets" and named.tags.get("bounds") != bounds_tag(values.bounds):
        raise RejectedError("its tag is not that of its bounds")
    return Metric((app, kind, named.name, _sorted(named.tags)), values)


def require_valid(values: Values) -> None:
    """Require that the sketch has as many values as a distribution counts. An empty one without a sum has the sum 0.

    Raises:
        ValueError: it is not so.
    """
    if values.kind in ("histogram", "timer"):
        if not values.count and values.sum is None:
            values.sum = 0.0
        if values.sketch is not None and number_of(values.sketch) != values.count:
            raise ValueError("the sketch has another number of values")
    if values.kind == "buckets":
        if len(values.bounds) % 8 or len(values.counts) != len(values.bounds) + 8 or len(values.counts) > 8 * 4096:
            raise ValueError("the counts do not fit the bounds")
        bounds = [-math.inf, *struct.unpack(f"<{len(values.bounds) // 8}d", values.bounds), math.inf]
        if not all(low < high for low, high in pairwise(bounds)):
            raise ValueError("the bounds do not rise")
        if sum(struct.unpack(f"<{len(values.counts) // 8}Q", values.counts)) != values.count:
            raise ValueError("the buckets have another number of values")


def bounds_tag(bounds: bytes) -> str:
    """Return the tag of explicit buckets with these bounds."""
    return str(len(bounds) // 8) + "-" + hashlib.sha256(bounds).digest()[:8].hex()


def _sorted(tags: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(tags.items()))
