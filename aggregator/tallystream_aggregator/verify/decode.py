"""Decodes records of `metrics` as in docs/record.md, with the standard library's JSON."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from tallystream_aggregator.verify import sketches

if TYPE_CHECKING:
    from collections.abc import Callable

Identity = tuple[str, str, str, tuple[tuple[str, str], ...]]
"""(app, type, name, sorted tags). Each has one sum."""

MAX_INT64 = 2**63 - 1
MAX_DEPTH = 64
_ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")
_NO_BRACKETS = re.compile(r'"(?:[^"\\]++|\\.)*+"?+|[^"\[\]{}]++', re.DOTALL)
"""Matches strings, also a truncated one, and everything else except brackets. Possessive, so it takes linear time."""

_NO_TEXT = re.compile("[\0\ud800-\udfff]")
"""NUL and surrogates."""


class RawRecord(NamedTuple):
    """A record as the broker has it. `timestamp_ms` is its append time in epoch ms."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


CLOCK_KEY = b"tallystream-clock"
_CLOCK = re.compile(rb'\{"v":1,"wall_ms":(0|[1-9]\d{0,14})\}')


class RejectedError(Exception):
    """A record or a metric that is refused. The text gives the reason."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One valid metric: its identity and its numbers, with the buckets of its `sketch`, None if it has none."""

    identity: Identity
    numbers: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot. `prev` is in epoch ms. `metrics` has each metric in order, or the reason why it is refused.

    One that is not `complete` may lack metrics of its part. `over_limit` tells whether there were more metrics than a
    record may have, `baseline` that its numbers are from before its stream of OTLP began.
    """

    app: str
    life: str
    part: int
    seq: int
    prev: int | None
    every_ms: int
    final: bool
    complete: bool
    metrics: list[Metric | RejectedError]
    over_limit: bool
    baseline: bool = False


@dataclass(frozen=True, slots=True)
class Forget:
    """A forget record: it removes lives of its instance, or metrics with a name. None matches any value."""

    app: str | None
    life: str | None
    metric: str | None
    kind: str | None
    tags: frozenset[tuple[str, str]]
    shards: int

    def has_life(self, app: str, life: str | None) -> bool:
        """Return whether the record removes this life of the instance."""
        return self.app in (None, app) and self.life in (None, life)

    def has_metric(self, identity: Identity) -> bool:
        """Return whether the record removes this metric. The metric may have more tags than the record."""
        app, kind, name, tags = identity
        return name == self.metric and self.app in (None, app) and self.kind in (None, kind) and self.tags <= set(tags)


def instance_of(key: bytes | None) -> str:
    """Return the instance ID in a record's key.

    Raises:
        RejectedError: it is not an instance ID.
    """
    if not key or len(key) > 1024 or b"\0" in key:
        raise RejectedError("the key is not an instance ID")
    try:
        return key.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RejectedError("the key is not UTF-8") from error


def read(value: bytes, max_metrics: int) -> Snapshot | Metric | Forget:
    """Return the snapshot, the counter of the short form, or the forget record in `value`.

    Raises:
        RejectedError: the whole record is refused.
    """
    content = _json(value)
    if not isinstance(content, dict):
        raise RejectedError("not a JSON object")
    if "metrics" not in content and "forget" in content and not ("name" in content and "value" in content):
        return _forget(content)
    if "metrics" not in content:
        name, tags = _text(content, "name", 1, 512), _tags(content)
        return Metric(("default", "counter", name, tags), {"count": _count(content, "value")})
    _require_version(content)
    life = _life(content)
    listed, final, complete = content["metrics"], content.get("final"), content.get("complete", True)
    if not isinstance(listed, list) or not isinstance(final, bool) or not isinstance(complete, bool):
        raise RejectedError("metrics is not a list, or final or complete is neither true nor false")
    _bounded_int(content, "ts", 0, MAX_INT64)
    return Snapshot(
        app=(app := _text(content, "app", 1, 512)),
        life=life,
        part=_bounded_int(content, "part", 0, MAX_INT64),
        seq=_bounded_int(content, "seq", 1, MAX_INT64),
        prev=None if content.get("prev") is None else _bounded_int(content, "prev", 0, MAX_INT64),
        every_ms=_bounded_int(content, "every_ms", 10, 3_600_000),
        final=final,
        complete=complete,
        metrics=[_metric_or_reason(app, one) for one in listed[:max_metrics]],
        over_limit=len(listed) > max_metrics,
    )


def _forget(content: dict[str, Any]) -> Forget:
    _require_version(content)
    named = content["forget"]
    if not isinstance(named, dict) or named.keys() - {"app", "life", "metric", "type", "tags", "shards"}:
        raise RejectedError("forget: no object, or a field that is not known")
    kind = named.get("type")
    if kind is not None and (not isinstance(kind, str) or kind not in _KINDS):
        raise RejectedError("forget: no known type")
    found = Forget(
        app=None if named.get("app") is None else _text(named, "app", 1, 512),
        life=None if named.get("life") is None else _life(named),
        metric=None if named.get("metric") is None else _text(named, "metric", 1, 512),
        kind=kind,
        tags=frozenset(_tags(named)),
        shards=_bounded_int(named, "shards", 1, MAX_INT64) if "shards" in named else 1,
    )
    of_metrics = kind is not None or found.tags or found.shards != 1
    if (found.life is not None and found.metric is not None) or (of_metrics and found.metric is None):
        raise RejectedError("forget: fields that do not go together")
    return found


def _require_version(content: dict[str, Any]) -> None:
    if content.get("v", 1) != 1 or isinstance(content.get("v"), (bool, float)):
        raise RejectedError("another version")


def _life(content: dict[str, Any]) -> str:
    life = content.get("life")
    if not isinstance(life, str) or not _ULID.fullmatch(life):
        raise RejectedError("life is no ULID")
    return life


def created_ms(life: str) -> int:
    """Return the time of a life's ULID in epoch ms: its first ten characters, in base 32."""
    return sum("0123456789ABCDEFGHJKMNPQRSTVWXYZ".index(digit) << 5 * (9 - n) for n, digit in enumerate(life[:10]))


def _json(value: bytes) -> Any:
    try:
        text = value.decode("utf-8")
        if value.count(b"[") + value.count(b"{") > MAX_DEPTH:
            _require_shallow(text)
        return json.loads(text, parse_int=_integer)
    except ValueError as error:
        raise RejectedError("not JSON in UTF-8") from error


def _require_shallow(text: str) -> None:
    depth = 0
    for bracket in _NO_BRACKETS.sub("", text):
        depth += 1 if bracket in "[{" else -1
        if depth > MAX_DEPTH:
            raise RejectedError("nested too deep")


def _integer(digits: str) -> int:
    # All longer numbers are as far beyond the range of floats as this one.
    return int(digits) if len(digits) < 400 else int(digits[:2] + "0" * 400)


def _metric_or_reason(app: str, content: Any) -> Metric | RejectedError:
    try:
        return _metric(app, content)
    except RejectedError as refused:
        return refused


def _metric(app: str, content: Any) -> Metric:
    kind = content.get("type") if isinstance(content, dict) else None
    reader = _KINDS.get(kind) if isinstance(kind, str) else None
    if reader is None:
        raise RejectedError("no metric of a known type")
    identity = (app, str(kind), _text(content, "name", 1, 512), _tags(content))
    return Metric(identity, reader(content))


def _distribution(content: dict[str, Any]) -> dict[str, Any]:
    for own in ("mean", "stddev", "p50", "p75", "p95", "p98", "p99", "p999"):
        _statistic(content, own)
    count = _count(content, "count")
    found: dict[str, Any] = {"count": count, "sum": _number(content, "sum", optional=True)}
    if not count and found["sum"] is None:
        found["sum"] = 0.0
    found |= {name: _number(content, name, optional=True) for name in ("min", "max")}
    return found | {"sketch": _sketch(content, count)}


def _rates(content: dict[str, Any]) -> dict[str, Any]:
    return {rate: _zero_if_absent(content, rate) for rate in ("mean_rate", "m1_rate", "m5_rate", "m15_rate")}


_KINDS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "counter": lambda content: {"count": _count(content, "count")},
    "float_counter": lambda content: {"sum": _positive(content, "sum")},
    "updown": lambda content: {"value": _number(content, "value")},
    "gauge": lambda content: {"value": _number(content, "value")},
    "meter": lambda content: {"count": _count(content, "count")} | _rates(content),
    "histogram": _distribution,
    "timer": lambda content: _distribution(content) | _rates(content),
    "position": lambda content: {"start": _count(content, "start"), "position": _count(content, "position")},
}


def _sketch(content: dict[str, Any], count: int) -> sketches.Bins | None:
    sketch = content.get("sketch")
    if sketch is None:
        return None
    try:
        bins = sketches.decode(sketch)
    except ValueError as error:
        raise RejectedError("the sketch can't be read") from error
    if sum(bins.values()) != count:
        raise RejectedError("the sketch has another number of values")
    return bins


def _count(content: dict[str, Any], name: str) -> int:
    return _bounded_int(content, name, 0, MAX_INT64)


def _bounded_int(content: dict[str, Any], name: str, least: int, most: int) -> int:
    value = content.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise RejectedError(f"{name} is not a whole number within its bounds")
    return value


def _number(content: dict[str, Any], name: str, *, optional: bool = False) -> Any:
    value = content.get(name)
    if value is None and optional:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise RejectedError(f"{name} is not a number")
    try:
        finite = math.isfinite(value)
    except OverflowError:
        finite = False
    if not finite:
        raise RejectedError(f"{name} is not finite")
    return value if -MAX_INT64 - 1 <= value <= MAX_INT64 else float(value)


def _statistic(content: dict[str, Any], name: str) -> None:
    """Require that a statistic of the instance is a number or null. It is in no sum, so an integer has no bounds."""
    if isinstance(content.get(name), bool) or not isinstance(content.get(name), int):
        _number(content, name, optional=True)


def _zero_if_absent(content: dict[str, Any], name: str) -> Any:
    return _number(content, name) if name in content else 0


def _positive(content: dict[str, Any], name: str) -> Any:
    value = _number(content, name)
    if value < 0:
        raise RejectedError(f"{name} is below 0")
    return value


def _text(content: dict[str, Any], name: str, least: int, most: int) -> str:
    return _good_text(content.get(name), name, least, most)


def _good_text(value: Any, name: str, least: int, most: int) -> str:
    if not isinstance(value, str) or not least <= len(value) <= most or _NO_TEXT.search(value):
        raise RejectedError(f"{name} is not text within its bounds")
    return value


def _tags(content: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    tags = content.get("tags", {})
    if not isinstance(tags, dict) or len(tags) > 32:
        raise RejectedError("tags are no object of up to 32")
    return tuple(sorted((_good_text(n, "tag", 1, 128), _good_text(v, "tag", 0, 512)) for n, v in tags.items()))


def clock(value: bytes | None) -> int | None:
    """Return the wall clock in a clock record, in epoch ms, None if the value is anything else."""
    found = _CLOCK.fullmatch(value or b"")
    return None if found is None else int(found[1])
