"""The record contract, version 1: what a reporter publishes to the topic `metrics`.

The key of a record is the instance ID in UTF-8. The value is JSON in UTF-8: one `Snapshot` of one registry, or the
`ShortForm` of one metric. A tombstone has no value. Counts are from 0 to 2**63 - 1. Rates are per second, durations in
seconds, clocks in epoch milliseconds. Unknown fields are ignored, so that a later version may add some.
"""

from __future__ import annotations

import hashlib
import math
import struct
from functools import lru_cache
from itertools import pairwise
from typing import Annotated, ClassVar, Literal, get_args

import msgspec

from tallystream.decoding import json_decoder
from tallystream.ulid import ulid_ms

MAX_COUNT = 2**63 - 1
MIN_EVERY_MS, MAX_EVERY_MS = 10, 3_600_000
TIMELY_MS = 86_400_000
"""Limit of the time from a record's `prev` to its append time, and of the ULID's lead, in ms. See `is_timely`."""

MIN_SCALE, MAX_SCALE = -10, 20
"""The range of a sketch's scale, as in OpenTelemetry's exponential histograms."""

DEFAULT_APP = "default"
"""The app of a metric in the short form."""

MAX_NAME, MAX_TAGS, MAX_TAG_NAME, MAX_TAG_VALUE = 512, 32, 128, 512
"""Limits of text, in characters, and of the number of tags. They keep a row of any topic far below Kafka's limit."""

BOUNDS, MAX_EXPLICIT_BUCKETS = "bounds", 4_096
"""The tag of explicit buckets, and how many there may be."""

Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME)]
Tags = Annotated[
    dict[
        Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_TAG_NAME)],
        Annotated[str, msgspec.Meta(max_length=MAX_TAG_VALUE)],
    ],
    msgspec.Meta(max_length=MAX_TAGS),
]
Number = float | int
LifeId = Annotated[str, msgspec.Meta(pattern=r"^[0-7][0-9A-HJKMNP-TV-Z]{25}\Z")]
"""A ULID: 48 bits of epoch milliseconds and 80 random bits, in Crockford's base 32 (github.com/ulid/spec)."""


class _Metric(msgspec.Struct, tag_field="type", omit_defaults=True, kw_only=True, gc=False):
    name: Name
    tags: Tags = {}

    @property
    def type(self) -> str:
        """The metric's type, as named in the record."""
        return _TYPES[self.__class__]

    @property
    def identity(self) -> Identity:
        """The key by which the metric is summed over instances, within an app."""
        return identity(self.name, self.type, self.tags)


class Counter(_Metric, tag="counter"):
    """A count that only grows within a life."""

    count: Count


class FloatCounter(_Metric, tag="float_counter"):
    """A sum that only grows within a life, and may have a fraction."""

    sum: Annotated[float, msgspec.Meta(ge=0)] | Annotated[int, msgspec.Meta(ge=0)]


class UpDown(_Metric, tag="updown"):
    """A value that may fall. It is summed over living lives, like a gauge."""

    value: Number


class Gauge(_Metric, tag="gauge"):
    """A current value."""

    value: Number


class Meter(_Metric, tag="meter"):
    """A count and its rates in events per second (mean, and Dropwizard's exponentially weighted averages)."""

    count: Count
    mean_rate: Number = 0.0
    m1_rate: Number = 0.0
    m5_rate: Number = 0.0
    m15_rate: Number = 0.0


class Buckets(msgspec.Struct, omit_defaults=True, kw_only=True, gc=False):
    """The counts of consecutive buckets of a sketch, of which the first one has the index `offset`.

    `counts` has an unsigned whole number of `width` bytes for each bucket, the lowest byte first, in JSON as base64.
    """

    offset: Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
    width: Literal[1, 2, 4, 8] = 1
    counts: bytes


class Sketch(msgspec.Struct, omit_defaults=True, kw_only=True, gc=False):
    """The distribution of values: OpenTelemetry's exponential histogram with base = 2 ** (2 ** -scale).

    Bucket i counts the values in (base ** i, base ** (i + 1)]. `positive` has them in rising order, without long runs
    of empty buckets. `negative` has the magnitudes of negative values.
    """

    scale: Annotated[int, msgspec.Meta(ge=MIN_SCALE, le=MAX_SCALE)]
    zero_count: Count = 0
    positive: tuple[Buckets, ...] = ()
    negative: tuple[Buckets, ...] = ()


class Histogram(_Metric, tag="histogram"):
    """A distribution: count, sum, min and max of all values, a mergeable sketch, and the instance's own view.

    `sum` is None if it is not known. Without values it is 0.
    """

    count: Count
    sum: Number | None = None
    min: Number | None = None
    max: Number | None = None
    sketch: Sketch | None = None
    mean: Number | None = None
    stddev: Number | None = None
    p50: Number | None = None
    p75: Number | None = None
    p95: Number | None = None
    p98: Number | None = None
    p99: Number | None = None
    p999: Number | None = None

    def __post_init__(self) -> None:
        if self.sum is None and not self.count:
            self.sum = 0.0


class Timer(Histogram, tag="timer"):
    """A histogram of durations in seconds, and the rate of the calls."""

    mean_rate: Number = 0.0
    m1_rate: Number = 0.0
    m5_rate: Number = 0.0
    m15_rate: Number = 0.0


class ExplicitBuckets(_Metric, tag="buckets"):
    """The values of a distribution in buckets with explicit bounds, as in OpenTelemetry's Histogram.

    `bounds` has rising floats of 8 bytes, `counts` an unsigned whole number of 8 bytes for each bucket, the lowest byte
    first, in JSON as base64. Bucket i counts the values in (bounds[i - 1], bounds[i]], the last one all above.
    The tag `bounds` is `bounds_tag(bounds)`: only buckets with the same bounds are the same metric.

    Raises:
        ValueError: it breaks these rules.
    """

    count: Count
    bounds: bytes
    counts: bytes

    def __post_init__(self) -> None:
        number, rest = divmod(len(self.bounds), 8)
        if rest or len(self.counts) != len(self.bounds) + 8 or number >= MAX_EXPLICIT_BUCKETS:
            raise ValueError(
                f"{len(self.counts)} bytes of counts do not fit {len(self.bounds)} bytes of bounds: each number has 8, "
                f"there is one more count than bounds, and there are at most {MAX_EXPLICIT_BUCKETS} counts"
            )
        bounds = struct.unpack(f"<{number}d", self.bounds)
        if not all(map(math.isfinite, bounds)) or not all(low < high for low, high in pairwise(bounds)):
            raise ValueError("the bounds of the buckets do not rise, or one is not finite")
        values = sum(struct.unpack(f"<{number + 1}Q", self.counts))
        if values != self.count:
            raise ValueError(f"the buckets have {values} values and the count is {self.count}")
        if self.tags.get(BOUNDS) != bounds_tag(self.bounds):
            raise ValueError(f"the tag {BOUNDS} is not {bounds_tag(self.bounds)}, that of the bounds")


@lru_cache(maxsize=100)
def bounds_tag(bounds: bytes) -> str:
    """Return the tag that buckets with these bounds have: the number of bounds and a digest."""
    return f"{len(bounds) // 8}-{hashlib.sha256(bounds).hexdigest()[:16]}"


class Position(_Metric, tag="position"):
    """The position of a consumer in the topic and partition named by its tags: its first and its next offset."""

    start: Count
    position: Count


Metric = Counter | FloatCounter | UpDown | Gauge | Meter | Histogram | Timer | ExplicitBuckets | Position
METRIC_TYPES: tuple[type[_Metric], ...] = get_args(Metric)
_TYPES = {kind: str(kind.__struct_config__.tag) for kind in METRIC_TYPES}
CLASSES = {name: kind for kind, name in _TYPES.items()}
"""The class of each type of metrics, by its name."""


class Header(msgspec.Struct, omit_defaults=True, kw_only=True):
    """All fields of a snapshot except its metrics."""

    v: Literal[1] = 1
    app: Name
    life: LifeId
    part: Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
    seq: Annotated[int, msgspec.Meta(ge=1, le=MAX_COUNT)]
    prev: Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)] | None = None
    ts: Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
    every_ms: Annotated[int, msgspec.Meta(ge=MIN_EVERY_MS, le=MAX_EVERY_MS)]
    final: bool
    complete: bool = True


def is_timely(header: Header, append_ms: int) -> bool:
    """Return whether a record that was appended at `append_ms` (its timestamp, epoch ms) is accepted.

    It is too late if `append_ms` is `TIMELY_MS` or more after its `prev`, or after its life's ULID if it has no `prev`.
    It is too early if the ULID is more than `TIMELY_MS` after `append_ms`. The result depends on the record and its
    append time only, so the aggregator and the reporter, which receives the append time with the acknowledgement,
    always agree.
    """
    created_ms = ulid_ms(header.life)
    since_ms = created_ms if header.prev is None else header.prev
    return append_ms - since_ms < TIMELY_MS and created_ms - append_ms <= TIMELY_MS


class Snapshot(Header, omit_defaults=True, kw_only=True):
    """A snapshot of one registry, or of one part of it.

    `seq` counts 1, 2, 3 … within (life, part). `prev` is the broker's append time of this life's last acknowledged
    record, absent until there is one. `ts` is the wall clock, for display only. `final` marks the last record of a part
    in its life. A snapshot that is not `complete` may lack metrics of its part; all of a life are complete, or none is.
    """

    metrics: list[Metric]


class ShortForm(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One counter from any program. It has no life, so it is not protected against duplicates or reordering."""

    name: Name
    value: Count
    tags: Tags = {}
    type: ClassVar[str] = "counter"


Identity = tuple[str, str, tuple[tuple[str, str], ...]]
"""The key by which a metric is summed over instances, within an app: (name, type, sorted tags)."""


def identity(name: str, type_: str, tags: dict[str, str]) -> Identity:
    """Return the identity of a metric. The order of the tags does not matter."""
    return name, type_, tuple(sorted(tags.items())) if len(tags) > 1 else tuple(tags.items())


_encoder = msgspec.json.Encoder()
_decode = json_decoder(Snapshot)


def encode(snapshot: Snapshot) -> bytes:
    """Return the value of the record. `v` is always written, although it has a default.

    JSON can't represent NaN and infinity: they become null, and the table refuses that metric only.
    """
    body = _encoder.encode(snapshot)
    return b'{"v":1,' + body[1:]


def decode(value: bytes) -> Snapshot:
    """Return the snapshot in `value`, which must be completely valid.

    Raises:
        msgspec.DecodeError: the value is not JSON in UTF-8, or it is nested too deep.
        msgspec.ValidationError: a field is missing, of the wrong type or out of bounds. The message names the field.
            It is a subclass of DecodeError.
    """
    return _decode(value)
