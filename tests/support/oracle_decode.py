"""Decode the records of `metrics` for the oracle, by docs/record.md and with the standard library's JSON."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from typing import Any

HOUR_MS = 3_600_000
LATE_MS = 24 * HOUR_MS
LARGEST = 2**63 - 1
Key = tuple[str, str, str, tuple[tuple[str, str], ...]]
"""(app, name, type, sorted tags)"""

RATES = ("mean_rate", "m1_rate", "m5_rate", "m15_rate")
QUANTILES = ("mean", "stddev", "p50", "p75", "p95", "p98", "p99", "p999")
LASTING = {
    "counter": ("count",),
    "updown": (),
    "gauge": (),
    "meter": ("count",),
    "histogram": ("count", "sum", "min", "max"),
    "timer": ("count", "sum", "min", "max"),
    "position": ("start", "position"),
}
REQUIRED = {"updown": ("value",), "gauge": ("value",), "position": ("start", "position")}
ULID_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


class BadError(Exception):
    """A record or a metric that is refused."""


def read_key(key: bytes | None) -> str:
    """Return the instance ID."""
    try:
        instance = (key or b"").decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadError("not UTF-8") from error
    if not instance or "\0" in instance or len(instance.encode()) > 1024:
        raise BadError("no instance ID")
    return instance


def read_value(value: bytes) -> dict[str, Any]:
    """Return the JSON object in a value."""
    try:
        text = value.decode("utf-8")
        if depth(text) > 64:
            raise BadError("nested too deep")
        document = json.loads(text, parse_int=lambda digits: int(digits) if len(digits) < 401 else float(digits))
    except ValueError as error:
        raise BadError("not JSON in UTF-8") from error
    if not isinstance(document, dict):
        raise BadError("not an object")
    if "metrics" not in document and not ("name" in document and "value" in document) and "forget" not in document:
        raise BadError("none of the forms")
    return document


def depth(text: str) -> int:
    """Return how deep brackets nest, those within texts not counted."""
    deepest = level = 0
    quoted = escaped = False
    for character in text:
        if quoted:
            quoted = escaped or character != '"'
            escaped = character == "\\" and not escaped
        elif character == '"':
            quoted = True
        elif character in "[{":
            level += 1
            deepest = max(deepest, level)
        elif character in "]}":
            level -= 1
    return deepest


def read_forget(document: dict[str, Any]) -> dict[str, Any]:
    """Return what a forget record names; raises BadError where it is not one."""
    bounded_int(document.get("v", 1), 1, 1)
    named = document["forget"]
    if not isinstance(named, dict) or set(named) - {"app", "life", "metric", "type", "tags", "shards"}:
        raise BadError("forget")
    for name in ("app", "metric"):
        if named.get(name) is not None:
            text(named[name], 1, 512)
    if named.get("life") is not None and not re.fullmatch(f"[0-7][{ULID_DIGITS}]{{25}}", text(named["life"], 26, 26)):
        raise BadError("life")
    if named.get("type") is not None and named["type"] not in LASTING:
        raise BadError("type")
    tags, shards = read_tags(named), bounded_int(named.get("shards", 1), 1, LARGEST)
    if named.get("metric") is None and (named.get("type") is not None or tags or shards != 1):
        raise BadError("no metric")
    if named.get("metric") is not None and named.get("life") is not None:
        raise BadError("a life and a metric")
    return named


def read_header(document: dict[str, Any], appended_ms: int) -> dict[str, Any]:
    """Return a snapshot's header; raises BadError where it is not one, or comes too late or too early."""
    if not isinstance(document["metrics"], list):
        raise BadError("metrics")
    bounded_int(document.get("v", 1), 1, 1)
    text(document.get("app"), 1, 512)
    if not re.fullmatch(f"[0-7][{ULID_DIGITS}]{{25}}", text(document.get("life"), 26, 26)):
        raise BadError("life")
    bounded_int(document.get("part"), 0, LARGEST)
    bounded_int(document.get("seq"), 1, LARGEST)
    bounded_int(document.get("ts"), 0, LARGEST)
    bounded_int(document.get("every_ms"), 10, HOUR_MS)
    if not isinstance(document.get("final"), bool):
        raise BadError("final")
    if not isinstance(document.setdefault("complete", True), bool):
        raise BadError("complete")
    prev = document.get("prev")
    known = ulid_ms(document["life"]) if prev is None else bounded_int(prev, 0, LARGEST)
    if appended_ms - known >= LATE_MS:
        raise BadError("too late")
    if ulid_ms(document["life"]) - appended_ms > LATE_MS:
        raise BadError("too early")
    return document


def read_short_form(document: dict[str, Any]) -> dict[str, Any]:
    """Return the short form as a header with its one metric."""
    tags = read_tags(document)
    key = ("default", text(document["name"], 1, 512), "counter", tags)
    metric = (key, bounded_int(document["value"], 0, LARGEST))
    return {"app": "default", "life": "", "final": False, "every_ms": None, "complete": True, "metric": metric}


def read_metric(item: Any, app: str) -> tuple[Key, dict[str, Any]]:
    """Return a metric's identity and what is kept of it."""
    if not isinstance(item, dict) or not isinstance(item.get("type"), str) or item["type"] not in LASTING:
        raise BadError("type")
    kind = item["type"]
    key = (app, text(item.get("name"), 1, 512), kind, read_tags(item))
    fields: dict[str, Any] = {}
    for name in REQUIRED.get(kind, ("count",)):
        fields[name] = number(item.get(name)) if name == "value" else bounded_int(item.get(name), 0, LARGEST)
    if kind in ("meter", "timer"):
        fields |= {name: number(item.get(name, 0.0)) for name in RATES}
    if kind in ("histogram", "timer"):
        fields["sum"] = number(item.get("sum", 0.0))
        for name in ("min", "max", *QUANTILES):
            if item.get(name) is not None:
                fields[name] = number(item[name])
        fields = {"min": None, "max": None} | fields
        if item.get("sketch") is not None and counted(item["sketch"]) != fields["count"]:
            raise BadError("the sketch and the count disagree")
    return key, fields


def counted(sketch: Any) -> int:
    """Return how many values a sketch stands for, by the format in docs/record.md."""
    if not isinstance(sketch, dict):
        raise BadError("sketch")
    scale, total = bounded_int(sketch.get("scale"), -10, 20), bounded_int(sketch.get("zero_count", 0), 0, LARGEST)
    for side in (sketch.get("positive"), sketch.get("negative")):
        if side is None:
            continue
        if not isinstance(side, dict) or not isinstance(side.get("counts"), list):
            raise BadError("buckets")
        offset, counts = bounded_int(side.get("offset"), -(2**31), 2**31 - 1), side["counts"]
        sizes = [max(1, -bounded_int(count, -(2**31), LARGEST)) for count in counts]
        powers = Fraction(2) ** -scale
        if sum(sizes) > 4096 or offset * powers <= -1075 - powers or (offset + sum(sizes)) * powers > 1024:
            raise BadError("buckets beyond the limit, or beyond every number")
        total += sum(count for count in counts if count > 0)
    return total


def read_tags(item: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the sorted tags of a metric."""
    tags = item.get("tags", {})
    if not isinstance(tags, dict) or len(tags) > 32:
        raise BadError("tags")
    return tuple(sorted((text(name, 1, 128), text(value, 0, 512)) for name, value in tags.items()))


def text(value: Any, shortest: int, longest: int) -> str:
    """Return `value` if it is a text that every store can keep."""
    if not isinstance(value, str) or not shortest <= len(value) <= longest or "\0" in value:
        raise BadError("text")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise BadError("half a surrogate pair") from error
    return value


def bounded_int(value: Any, least: int, greatest: int) -> int:
    """Return `value` if it is a whole number within bounds."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= greatest:
        raise BadError("whole number")
    return value


def number(value: Any) -> int | float:
    """Return `value` if it is a number; as a float where 64 bits do not hold it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadError("number")
    try:
        near = float(value)
    except OverflowError as error:
        raise BadError("beyond floats") from error
    if near in (float("inf"), float("-inf")) or near != near:  # noqa: PLR0124  (NaN alone differs from itself)
        raise BadError("not finite")
    return value if isinstance(value, float) or -LARGEST - 1 <= value <= LARGEST else near


def ulid_ms(life: str) -> int:
    """Return the epoch milliseconds in a ULID's first ten characters."""
    total = 0
    for character in life[:10]:
        total = total * 32 + ULID_DIGITS.index(character)
    return total


def without_tags(key: Key, drop_tags: tuple[str, ...] = (), keep_tags: tuple[str, ...] | None = None) -> Key:
    """Return the key of a metric's sum."""
    app, name, kind, tags = key
    needed = ["topic", "partition"] if kind == "position" else []
    if kind == "counter" and name[-7:] == ".bucket":
        needed = ["le"]
    kept = {tag for tag, _ in tags} - set(drop_tags) if keep_tags is None else set(keep_tags)
    return app, name, kind, tuple((tag, text) for tag, text in tags if tag in kept or tag in needed)
