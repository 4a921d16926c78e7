"""What a sum is called in Prometheus: families, labels, and what keeps two names apart. Pure.

A name of letters and digits between dots, `orders.processed`, is read with underscores: `orders_processed`, and its
type says the rest: `orders_processed_total` for a count, `orders_processed_seconds` for a timer. That is not reversible
for every name, so each series whose family does not tell its name has the label `name`. Whether it has one depends on
its own name and type alone, never on what else there is: a series is not renamed by a newcomer.

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
"""Families beside those of the metrics: a sample of each for each sum (OVERFLOW: of those beyond their range), and how
many sums there are."""

OTHERWISE = "_value"
"""Goes after the name of a family whose plain name is another kind's (`prometheus_text.families`)."""

_RATES = {field: ("gauge", f"_{field}", "") for field in ("mean_rate", "m1_rate", "m5_rate", "m15_rate")}
_BOUNDS = {field: ("gauge", f"_{field}", "") for field in ("min", "max")}
_COUNT = {"count": ("counter", "_total", "")}
_VALUE = {"sum": ("gauge", "", ""), **_BOUNDS, "mean": ("gauge", "_mean", ""), "number": ("gauge", "_number", "")}
_QUANTILES = {"p50": "0.5", "p75": "0.75", "p95": "0.95", "p98": "0.98", "p99": "0.99", "p999": "0.999"}
_SUMMARY = {"sum": ("summary", "", "_sum"), "count": ("summary", "", "_count"), **_BOUNDS}
_FIELDS: dict[str, dict[str, tuple[str, str, str]]] = {
    "counter": _COUNT,
    "meter": _COUNT | _RATES,
    "gauge": _VALUE,
    "updown": _VALUE,
    "histogram": _SUMMARY,
    "timer": _SUMMARY | _RATES,
    "position": {"position": ("counter", "_total", ""), "start": ("gauge", "_start", "")},
}
_UNIT = {"timer": "_seconds"}
_ENDS = ("_total", "_seconds", "_sum", "_count", "_min", "_max", "_mean", "_number", "_rate", "_start", OTHERWISE)
"""How a plain name may not end without the label: another one's family may be called so."""

LABELS = RESERVED | {"name", "quantile", "le"}
"""Labels that are ours or Prometheus': a tag of a user's that is called so gets a prefix."""

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9]*(\.[A-Za-z0-9]+)*")
_LABEL = re.compile(r"(?!__|U__)[A-Za-z_][A-Za-z0-9_]*")


class Place(NamedTuple):
    """Where a field's value is: the sample `family` + `suffix` of a family of this kind, with this quantile if any."""

    family: str
    kind: Kind
    suffix: str = ""
    quantile: str = ""


def family_name(name: str) -> str:
    """Return a metric's name in Prometheus' alphabet, colons left to recording rules."""
    fitting = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return fitting if re.match(r"[A-Za-z_]", fitting) else f"_{fitting}"


@lru_cache(maxsize=65_536)  # a large exposition asks for each sum's fields again and again
def place(name: str, metric_type: str, field: str) -> Place | None:
    """Return where the field of a sum is exposed, None where it is not: `lives` and the like have families of ours."""
    base = family_name(name)
    unit = _UNIT.get(metric_type, "")
    if field in _QUANTILES and metric_type in ("histogram", "timer"):
        return Place(_with(base, unit), "summary", "", _QUANTILES[field])
    found = _FIELDS.get(metric_type, {}).get(field)
    if found is None:
        return None
    kind, end, suffix = found
    if field not in _RATES:  # calls a second are in no unit of time
        base = _with(base, unit)
    return Place(_with(base, end) if end == "_total" else base + end, kind, suffix)  # type: ignore[arg-type]


def known(metric_type: str) -> bool:
    """Tell whether sums are of this type."""
    return metric_type in _FIELDS


def is_plain(name: str) -> bool:
    """Tell whether the family alone tells the name: its underscores are dots, and nothing else was changed."""
    return _PLAIN.fullmatch(name) is not None and not family_name(name).endswith(_ENDS)


def labels(name: str, tags: Mapping[str, str], *, named: bool = False) -> dict[str, str]:
    """Return the labels of a sum's samples: its tags (`app` and `metric_type` among them), `name` where it is needed.

    With `named` it is there in any case.
    """
    found = {label_name(_own(key)): label_value(value) for key, value in sorted(tags.items())}
    return {"name": label_value(name), **found} if named or not is_plain(name) else found


def label_name(key: str) -> str:
    """Return a tag's key as a label: itself, or in Prometheus' own escaping of names, from which it can be read back.

    Source: "Escaping schemes", `values` (prometheus.io/docs/instrumenting/escaping_schemes): `U__` before it, `__` for
    an underscore, `_HEX_` for any other character that a label's name can't have.
    """
    return key if _LABEL.fullmatch(key) else "U__" + "".join(_escaped(char) for char in key)


def label_value(value: str) -> str:
    """Return a tag's value as a label's: itself, but for the empty one, which to Prometheus is no label: it is `%`.

    A value of nothing but `%` gets one more, so that no two meet.
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
