"""Decode the records of `metrics` for the oracle: docs/record.md, with the standard library's JSON."""

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
    "float_counter": ("sum",),
    "updown": (),
    "gauge": (),
    "meter": ("count",),
    "histogram": ("count", "sum", "min", "max"),
    "timer": ("count", "sum", "min", "max"),
    "position": ("start", "position"),
}
REQUIRED = {"float_counter": ("sum",), "updown": ("value",), "gauge": ("value",), "position": ("start", "position")}
ULID_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


class InvalidError(Exception):
    """A record or a metric is refused."""


def read_key(key: bytes | None) -> str:
    """Return the instance ID."""
    try:
        instance = (key or b"").decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidError("not UTF-8") from error
    if not instance or "\0" in instance or len(instance.encode()) > 1024:
        raise InvalidError("no instance ID")
    return instance


def read_value(value: bytes) -> dict[str, Any]:
    """Return the JSON object in a value."""
    try:
        text = value.decode("utf-8")
        if depth(text) > 64:
            raise InvalidError("nested too deeply")
        document = json.loads(text, parse_int=lambda digits: int(digits if len(digits) < 401 else digits[:401]))
    except ValueError as error:
        raise InvalidError("not JSON in UTF-8") from error
    if not isinstance(document, dict):
        raise InvalidError("not an object")
    if "metrics" not in document and not ("name" in document and "value" in document) and "forget" not in document:
        raise InvalidError("none of the forms")
    return document


def depth(text: str) -> int:
    """Return the depth of nested brackets outside of strings."""
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
    """Return the fields of a forget record. Raise InvalidError if it is not valid."""
    bounded_int(document.get("v", 1), 1, 1)
    named = document["forget"]
    if not isinstance(named, dict) or set(named) - {"app", "life", "metric", "type", "tags", "shards"}:
        raise InvalidError("forget")
    for name in ("app", "metric"):
        if named.get(name) is not None:
            text(named[name], 1, 512)
    if named.get("life") is not None and not re.fullmatch(f"[0-7][{ULID_DIGITS}]{{25}}", text(named["life"], 26, 26)):
        raise InvalidError("life")
    if named.get("type") is not None and not (isinstance(named["type"], str) and named["type"] in LASTING):
        raise InvalidError("type")
    tags, shards = read_tags(named), bounded_int(named.get("shards", 1), 1, LARGEST)
    if named.get("metric") is None and (named.get("type") is not None or tags or shards != 1):
        raise InvalidError("no metric")
    if named.get("metric") is not None and named.get("life") is not None:
        raise InvalidError("a life and a metric")
    return named


def read_header(document: dict[str, Any], appended_ms: int) -> dict[str, Any]:
    """Return a snapshot's header. Raise InvalidError if it is not valid, or appended too late or too early."""
    if not isinstance(document["metrics"], list):
        raise InvalidError("metrics")
    bounded_int(document.get("v", 1), 1, 1)
    text(document.get("app"), 1, 512)
    if not re.fullmatch(f"[0-7][{ULID_DIGITS}]{{25}}", text(document.get("life"), 26, 26)):
        raise InvalidError("life")
    bounded_int(document.get("part"), 0, LARGEST)
    bounded_int(document.get("seq"), 1, LARGEST)
    bounded_int(document.get("ts"), 0, LARGEST)
    bounded_int(document.get("every_ms"), 10, HOUR_MS)
    if not isinstance(document.get("final"), bool):
        raise InvalidError("final")
    if not isinstance(document.setdefault("complete", True), bool):
        raise InvalidError("complete")
    prev = document.get("prev")
    known = ulid_ms(document["life"]) if prev is None else bounded_int(prev, 0, LARGEST)
    if appended_ms - known >= LATE_MS:
        raise InvalidError("too late")
    if ulid_ms(document["life"]) - appended_ms > LATE_MS:
        raise InvalidError("too early")
    return document


def read_short_form(document: dict[str, Any]) -> dict[str, Any]:
    """Return the header of a record in the short form, with its one metric."""
    tags = read_tags(document)
    key = ("default", text(document["name"], 1, 512), "counter", tags)
    metric = (key, bounded_int(document["value"], 0, LARGEST))
    return {"app": "default", "life": "", "final": False, "every_ms": None, "complete": True, "metric": metric}


def read_metric(item: Any, app: str) -> tuple[Key, dict[str, Any]]:
    """Return a metric's identity and the fields that the table keeps."""
    if not isinstance(item, dict) or not isinstance(item.get("type"), str) or item["type"] not in LASTING:
        raise InvalidError("type")
    kind = item["type"]
    key = (app, text(item.get("name"), 1, 512), kind, read_tags(item))
    fields: dict[str, Any] = {}
    for name in REQUIRED.get(kind, ("count",)):
        whole = name not in ("value", "sum")
        fields[name] = bounded_int(item.get(name), 0, LARGEST) if whole else number(item.get(name))
    if kind == "float_counter" and fields["sum"] < 0:
        raise InvalidError("below 0")
    if kind in ("meter", "timer"):
        fields |= {name: number(item.get(name, 0.0)) for name in RATES}
    if kind in ("histogram", "timer"):
        fields["sum"] = number(item.get("sum", 0.0))
        for name in ("min", "max", *QUANTILES):
            if item.get(name) is not None:
                is_unbounded = name in QUANTILES and type(item[name]) is int  # in no sum
                fields[name] = item[name] if is_unbounded else number(item[name])
        fields = {"min": None, "max": None} | fields
        if item.get("sketch") is not None and counted(item["sketch"]) != fields["count"]:
            raise InvalidError("the sketch and the count disagree")
    return key, fields


def counted(sketch: Any) -> int:
    """Return the number of values in a sketch, in the format of docs/record.md."""
    if not isinstance(sketch, dict):
        raise InvalidError("sketch")
    scale, total = bounded_int(sketch.get("scale"), -10, 20), bounded_int(sketch.get("zero_count", 0), 0, LARGEST)
    for side in (sketch.get("positive"), sketch.get("negative")):
        if side is None:
            continue
        if not isinstance(side, dict) or not isinstance(side.get("counts"), list):
            raise InvalidError("buckets")
        offset, counts = bounded_int(side.get("offset"), -(2**31), 2**31 - 1), side["counts"]
        sizes = [max(1, -bounded_int(count, -(2**31), LARGEST)) for count in counts]
        powers = Fraction(2) ** -scale
        if sum(sizes) > 4096 or offset * powers <= -1075 - powers or (offset + sum(sizes)) * powers > 1024:
            raise InvalidError("buckets beyond the limit, or beyond every number")
        total += sum(count for count in counts if count > 0)
    return total


def read_tags(item: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the sorted tags of a metric."""
    tags = item.get("tags", {})
    if not isinstance(tags, dict) or len(tags) > 32:
        raise InvalidError("tags")
    return tuple(sorted((text(name, 1, 128), text(value, 0, 512)) for name, value in tags.items()))


def text(value: Any, shortest: int, longest: int) -> str:
    """Return `value` if it is a valid text whose length is within bounds."""
    if not isinstance(value, str) or not shortest <= len(value) <= longest or "\0" in value:
        raise InvalidError("text")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidError("half a surrogate pair") from error
    return value


def bounded_int(value: Any, least: int, greatest: int) -> int:
    """Return `value` if it is an integer within bounds."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= greatest:
        raise InvalidError("integer")
    return value


def number(value: Any) -> int | float:
    """Return `value` if it is a finite number. An integer beyond 64 bits becomes a float."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidError("number")
    try:
        near = float(value)
    except OverflowError as error:
        raise InvalidError("beyond floats") from error
    if near in (float("inf"), float("-inf")) or near != near:  # noqa: PLR0124  (NaN alone differs from itself)
        raise InvalidError("not finite")
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
