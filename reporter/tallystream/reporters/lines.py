"""Text formats: functions that convert a metric to lines. No name, tag or value can add a line break."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tallystream.record import Metric
    from tallystream.reporters.filters import Values

_INTEGER = frozenset({"count", "start", "position"})
_CONTROL = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")
_NOT_GRAPHITE = re.compile(r"[\s;!^=~\x00-\x1f\x7f]")
_ESCAPED_MEASUREMENT = str.maketrans({",": "\\,", " ": "\\ ", "\n": "\\n", "\r": "\\r", "\t": "\\t"})
_ESCAPED_TAG = str.maketrans({",": "\\,", " ": "\\ ", "=": "\\=", "\n": "\\n", "\r": "\\r", "\t": "\\t"})


def readable(metric: Metric, values: Values) -> str:
    """Return one readable line: `records.processed{topic=orders} counter count=3`."""
    tags = ",".join(f"{name}={value}" for name, value in sorted(metric.tags.items()))
    shown = " ".join(f"{name}={_short(value)}" for name, value in values.items())
    text = f"{metric.name}{{{tags}}}" if tags else metric.name
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], f"{text} {metric.type} {shown}".rstrip())


def graphite(metric: Metric, values: Values, prefix: str, tags: Mapping[str, str], ts_ms: int) -> list[str]:
    """Return a plaintext line for each attribute: `prefix.name.attribute;tag=value VALUE SECONDS`.

    Tags need Graphite 1.1 or later. Characters that the format can't represent become `_`. A tag with an empty value is
    skipped, since Graphite does not accept it.
    """
    path = ".".join(_plain(part) for part in (prefix, metric.name) if part)
    together = {**tags, **metric.tags}
    suffix = "".join(f";{_plain(name)}={_plain(value)}" for name, value in sorted(together.items()) if value)
    return [f"{path}.{attribute}{suffix} {value!r} {ts_ms // 1000}" for attribute, value in values.items()]


def influx(metric: Metric, values: Values, tags: Mapping[str, str], ts_ms: int) -> str | None:
    r"""Return the point in InfluxDB's line protocol, its time in milliseconds, or None if it has no field.

    Counts and offsets are written as integers, all other values as floats, so that the type of a field never changes. A
    line break or tab in a name or tag is written as \n, \r or \t, as in the official client. A backslash at the end of
    one would escape the next character, so `_` is appended. A tag with an empty value is skipped, since InfluxDB does
    not accept it.
    """
    if not values:
        return None
    measurement = _closed(metric.name).translate(_ESCAPED_MEASUREMENT)
    together = {**tags, **metric.tags}
    suffix = "".join(
        f",{_closed(name).translate(_ESCAPED_TAG)}={_closed(value).translate(_ESCAPED_TAG)}"
        for name, value in sorted(together.items())
        if value
    )
    fields = ",".join(f"{name}={v}i" if name in _INTEGER else f"{name}={float(v)!r}" for name, v in values.items())
    return f"{measurement}{suffix} {fields} {ts_ms}"


def _plain(text: str) -> str:
    return _NOT_GRAPHITE.sub("_", text)


def _closed(text: str) -> str:
    return text + "_" if text.endswith("\\") else text


def _short(value: float) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
