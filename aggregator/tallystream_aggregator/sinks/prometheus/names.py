"""The names of sums in Prometheus: families, labels, and what keeps two names distinct. Pure functions.

In a family's name, dots become underscores, and the type adds a suffix: `orders.processed` is `orders_processed_total`
as a count and `orders_processed_seconds` as a timer. This is not reversible for every name, so a series has the label
`name` if its family does not determine its name. This depends only on the metric's own name, so another metric never
adds the label to an existing series, except if two kinds want the same family (`text`).

Source: "Metric and label naming" and "Data model" (prometheus.io/docs), text format 0.0.4.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple

from tallystream_aggregator.sinks.base import RESERVED, free

if TYPE_CHECKING:
    from collections.abc import Mapping

Kind = Literal["counter", "gauge", "summary"]

LIVING_LIVES = "tallystream_living_lives"
LIVING_INSTANCES = "tallystream_living_instances"
RETIRED_LIVES = "tallystream_retired_lives"
OVERFLOW = "tallystream_sum_overflow"
SUM_TIME = "tallystream_sum_time_seconds"
SUMS = "tallystream_sums"
"""Families in addition to those of the metrics. Each has a sample for each sum (OVERFLOW: for those with an overflow),
except SUMS, the number of sums."""

RENAME_SUFFIX = "_value"
"""The suffix of a family whose plain name is that of another kind (`text.exposition`)."""

_RATES = {field: ("gauge", f"_{field}", "") for field in ("mean_rate", "m1_rate", "m5_rate", "m15_rate")}
_BOUNDS = {field: ("gauge", f"_{field}", "") for field in ("min", "max")}
_COUNT = {"count": ("counter", "_total", "")}
_VALUE = {"sum": ("gauge", "", ""), **_BOUNDS, "mean": ("gauge", "_mean", ""), "number": ("gauge", "_number", "")}
_QUANTILES = {"p50": "0.5", "p75": "0.75", "p95": "0.95", "p98": "0.98", "p99": "0.99", "p999": "0.999"}
_SUMMARY = {"sum": ("summary", "", "_sum"), "count": ("summary", "", "_count"), **_BOUNDS}
_FIELDS: dict[str, dict[str, tuple[str, str, str]]] = {
    "counter": _COUNT,
    "float_counter": {"sum": ("counter", "_total", "")},
    "meter": _COUNT | _RATES,
    "gauge": _VALUE,
    "updown": _VALUE,
    "histogram": _SUMMARY,
    "timer": _SUMMARY | _RATES,
    "position": {"position": ("counter", "_total", ""), "start": ("gauge", "_start", "")},
}
_UNIT = {"timer": "_seconds"}
_ENDS = ("_total", "_seconds", "_sum", "_count", "_min", "_max", "_mean", "_number", "_rate", "_start", RENAME_SUFFIX)
"""A name that ends in one of these needs the label `name`, because another metric may have the same family."""

LABELS = RESERVED | {"name", "quantile", "le"}
"""Labels of Tallystream and Prometheus. A user's tag with one of these names gets a prefix."""

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9]*(\.[A-Za-z0-9]+)*")
_LABEL = re.compile(r"(?!__|U__)[A-Za-z_][A-Za-z0-9_]*")


class Place(NamedTuple):
    """The place of a field's value: the sample `family` + `suffix` of a family of this kind, with `quantile` if any."""

    family: str
    kind: Kind
    suffix: str = ""
    quantile: str = ""


def family_name(name: str) -> str:
    """Return a metric's name in the characters that Prometheus allows. Colons are left for recording rules."""
    fitting = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return fitting if re.match(r"[A-Za-z_]", fitting) else f"_{fitting}"


@lru_cache(maxsize=65_536)  # each exposition looks up the same fields again
def place(name: str, metric_type: str, field: str) -> Place | None:
    """Return the place of a sum's field, None if it has none: `lives` and similar fields are in other families."""
    base = family_name(name)
    unit = _UNIT.get(metric_type, "")
    if field in _QUANTILES and metric_type in ("histogram", "timer"):
        return Place(_with(base, unit), "summary", "", _QUANTILES[field])
    found = _FIELDS.get(metric_type, {}).get(field)
    if found is None:
        return None
    kind, end, suffix = found
    if field not in _RATES:  # a rate is in calls a second, not in seconds
        base = _with(base, unit)
    return Place(_with(base, end) if end == "_total" else base + end, kind, suffix)  # type: ignore[arg-type]


def known(metric_type: str) -> bool:
    """Return whether sums can have this type."""
    return metric_type in _FIELDS


def is_plain(name: str) -> bool:
    """Return whether the family determines the name: its underscores are dots, and nothing else was changed."""
    return _PLAIN.fullmatch(name) is not None and not family_name(name).endswith(_ENDS)


def labels(name: str, tags: Mapping[str, str], *, named: bool = False) -> dict[str, str]:
    """Return the labels of a sum's samples: its tags, including `app` and `metric_type`, and `name` if it is needed.

    With `named`, they always have `name`.
    """
    found = {label_name(_own(key)): label_value(value) for key, value in sorted(tags.items())}
    return {"name": label_value(name), **found} if named or not is_plain(name) else found


def label_name(key: str) -> str:
    """Return a tag's key as the name of a label, escaped if the key is not a valid name. The escaping is reversible.

    Source: "Escaping schemes", `values` (prometheus.io/docs/instrumenting/escaping_schemes): a prefix `U__`, `__` for
    an underscore, `_HEX_` for any other character that is not an ASCII letter or digit.
    """
    return key if _LABEL.fullmatch(key) else "U__" + "".join(_escaped(char) for char in key)


def label_value(value: str) -> str:
    """Return a tag's value as the value of a label. The empty value, which to Prometheus means no label, becomes `%`.

    A value of only `%` gets another `%`, so values stay distinct.
    """
    return value + "%" if not value.strip("%") else value


def _own(key: str) -> str:
    return key if key in RESERVED else free(key, LABELS - RESERVED)


def _with(base: str, end: str) -> str:
    return base if end and base.endswith(end) else base + end


def _escaped(char: str) -> str:
    if char == "_":
        return "__"
    return char if char.isascii() and char.isalnum() else f"_{ord(char):x}_"
