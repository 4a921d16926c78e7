"""Read one record of the topic `metrics`: a snapshot, the short form, a tombstone, or something unreadable.

Rule 8: what can't be read stops nothing, and one bad metric does not freeze its neighbours.
"""

from __future__ import annotations

import json
import math
from typing import Any, NamedTuple

import msgspec

from tallystream.reporter.record import METRIC_TYPES, Header, Metric, ShortForm, Snapshot

MAX_KEY_BYTES = 1024


class Record(NamedTuple):
    """A record as Kafka has it. `timestamp_ms` is the broker's append time, in epoch milliseconds."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


class Rejected(NamedTuple):
    """One metric that can't be taken, as JSON text, and why."""

    reason: str
    metric: str


class Good(NamedTuple):
    """A snapshot, less the metrics that were rejected."""

    snapshot: Snapshot
    rejected: tuple[Rejected, ...] = ()


class Unreadable(NamedTuple):
    """A record of which nothing can be taken, and why."""

    reason: str


_snapshots = msgspec.json.Decoder(Snapshot)
_short_forms = msgspec.json.Decoder(ShortForm)
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
    return Unreadable("the key holds a NUL character") if "\0" in instance else instance


def read_value(value: bytes) -> Good | ShortForm | Unreadable:
    """Return what a record's value says."""
    if b"\\u0000" not in value:  # no store keeps a NUL: the careful way finds out in which metric it is
        try:
            return Good(_snapshots.decode(value)) if b'"metrics"' in value else _short_forms.decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass  # the careful way below tells what is wrong, and saves what is good
    return _read_with_care(value)


def _read_with_care(value: bytes) -> Good | ShortForm | Unreadable:
    try:
        # The standard library's parser knows NaN and Infinity, which other reporters write: so it finds the neighbours.
        document = json.loads(value)
        json.dumps(document, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        return Unreadable(f"the value is not JSON in UTF-8: {error}")
    if not isinstance(document, dict):
        return Unreadable("the value is not a JSON object")
    if "metrics" in document:
        return _snapshot(document)
    if "name" in document and "value" in document:
        try:
            _require_storable(document)
            return msgspec.convert(document, ShortForm)
        except (msgspec.ValidationError, ValueError) as error:
            return Unreadable(f"short form: {error}")
    return Unreadable("the value is neither a snapshot (metrics) nor the short form (name, value)")


def _snapshot(document: dict[str, Any]) -> Good | Unreadable:
    metrics = document.pop("metrics")
    try:
        _require_storable(document)
        header = msgspec.convert(document, Header)
    except (msgspec.ValidationError, ValueError) as error:
        return Unreadable(f"snapshot: {error}")
    if not isinstance(metrics, list):
        return Unreadable("snapshot: metrics is not a list")
    good: list[Metric] = []
    rejected = []
    for item in metrics:
        try:
            good.append(_metric(item))
        except (msgspec.ValidationError, ValueError) as error:
            rejected.append(Rejected(str(error), json.dumps(item, ensure_ascii=False)))
    fields = {name: getattr(header, name) for name in Header.__struct_fields__}
    return Good(Snapshot(**fields, metrics=good), tuple(rejected))


def _metric(item: object) -> Metric:
    if not isinstance(item, dict) or item.get("type") not in _TYPES:
        raise ValueError(f"the type is not one of {', '.join(_TYPES)}")
    _require_storable(item)
    metric: Metric = msgspec.convert(item, _TYPES[item["type"]])
    return metric


def _require_storable(item: object) -> None:
    if isinstance(item, dict):
        for key, value in item.items():
            _require_storable(key)
            _require_storable(value)
    elif isinstance(item, str) and "\0" in item:
        raise ValueError("a text holds a NUL character")
    elif isinstance(item, float) and not math.isfinite(item):
        raise ValueError(f"{item} is not a number that can be summed")
