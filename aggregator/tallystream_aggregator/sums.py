"""The row of `metrics-agg`: an absolute sum and the input offsets that it includes. Key and value are JSON in UTF-8."""

from __future__ import annotations

from copy import copy
from itertools import pairwise

import msgspec

from tallystream.decoding import json_decoder
from tallystream.metric_types import QUANTILES

MetricId = tuple[str, str, str, tuple[tuple[str, str], ...]]
"""(app, name, type, sorted tags)"""

Offsets = dict[str, dict[str, int]]
"""topic → partition → the last offset included"""

VALUES = (
    *("count", "sum", "min", "max", "mean", "number", "mean_rate", "m1_rate", "m5_rate", "m15_rate"),
    *(*QUANTILES, "start", "position", "ended", "silent"),
)
"""The fields of a sum that its type determines, without the sketch."""

_REPEATED = tuple(pairwise(reversed(QUANTILES)))
"""Quantiles, the highest first, each of which is left out of a record if it equals the other one: few values repeat."""

NO_SKETCH = msgspec.Raw()


class Sum(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The sum of one metric over all instances of an app, as of the input offsets in `offsets`.

    The `type` determines which fields are set: counter: count; float_counter: sum; updown and gauge: sum, min, max,
    mean, number; meter: count and rates; histogram: count, min, max (and the sum, if every life that counted values has
    a sum, quantiles and the merged sketch, if every such life has a sketch); timer: both; buckets: count, `bounds`, and
    `counts` of the values up to each bound and above the one before, and above the last one; position: start, position;
    instances: `ended` and `silent`, the numbers of such instances of the app.
    A gauge that no living life reports has number 0 and no sum.

    `lives` and `instances` count the living lives that have the metric and their distinct instance IDs. `retired`
    counts the forgotten lives. `overflow` tells whether a number exceeds 64 bits or the range of floats. Then it is
    replaced by the largest or smallest number, a gauge has no mean, and there are no quantiles, sketch and bounds. `ts`
    is the table's clock in epoch ms, the point's time. `offsets` maps topic → partition → the last offset included. The
    newest committed row of a key is the metric's sum. `sketch` is not decoded, because few readers need it.
    """

    v: int = 1
    app: str
    name: str
    type: str
    tags: dict[str, str] = {}
    count: int | None = None
    sum: float | int | None = None
    min: float | int | None = None
    max: float | int | None = None
    mean: float | None = None
    number: int | None = None
    mean_rate: float | None = None
    m1_rate: float | None = None
    m5_rate: float | None = None
    m15_rate: float | None = None
    p50: float | None = None
    p75: float | None = None
    p95: float | None = None
    p98: float | None = None
    p99: float | None = None
    p999: float | None = None
    sketch: msgspec.Raw = NO_SKETCH
    bounds: list[float] = []
    counts: list[int] = []
    start: int | None = None
    position: int | None = None
    ended: int | None = None
    silent: int | None = None
    lives: int = 0
    instances: int = 0
    retired: int = 0
    overflow: bool = False
    ts: int
    offsets: Offsets = {}

    @property
    def metric(self) -> MetricId:
        """The identity of the metric."""
        return self.app, self.name, self.type, tuple(sorted(self.tags.items()))

    def key(self) -> bytes:
        """The record's key."""
        return key_of(self.metric)

    def value(self) -> bytes:
        """The record's value. It always has `v`. A quantile that equals the one before it is left out."""
        row = self
        if self.p50 is not None:
            row = copy(self)
            for field, before in _REPEATED:
                if getattr(self, field) == getattr(self, before):
                    setattr(row, field, None)
        return b'{"v":1,' + _encoder.encode(row)[1:]


_encoder = msgspec.json.Encoder()
_decode = json_decoder(Sum)
_decode_key = json_decoder(tuple[str, str, str, tuple[tuple[str, str], ...]])


def key_of(metric: MetricId) -> bytes:
    """Return the key of a sum: a JSON array. The same metric always has the same bytes."""
    app, name, kind, tags = metric
    return _encoder.encode([app, kind, name, tags])


def metric_of(key: bytes) -> MetricId:
    """Return the metric of a key.

    Raises:
        msgspec.DecodeError: it is not the key of a sum.
    """
    app, kind, name, tags = _decode_key(key)
    return app, name, kind, tags


def decode(value: bytes) -> Sum:
    """Return the row in `value`.

    Raises:
        msgspec.DecodeError: it is not a row of `metrics-agg` (msgspec.ValidationError, a subclass, names the field).
    """
    row = _decode(value)
    for field, before in reversed(_REPEATED):
        if getattr(row, field) is None:
            setattr(row, field, getattr(row, before))
    require_floats(row.sum, row.min, row.max)
    return row


def require_floats(*values: float | None) -> None:
    """Require that each number can be a float. JSON has integers of any length.

    Raises:
        msgspec.ValidationError: one can't.
    """
    for value in values:
        if isinstance(value, int):
            try:
                float(value)
            except OverflowError as error:
                raise msgspec.ValidationError("a number is beyond the range of floats") from error
