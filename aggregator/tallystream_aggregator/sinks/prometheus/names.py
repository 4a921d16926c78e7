"""The names of sums in Prometheus: families and labels. Pure functions.

In a family's name, dots become underscores, and the type adds a suffix: `orders.processed` is `orders_processed_total`
as a count and `orders_processed_seconds` as a timer. This is not reversible, so every series has the label `name`.
Metrics whose families have the same name share the family, and the label keeps their series apart.

Source: "Metric and label naming" and "Data model" (prometheus.io/docs), text format 0.0.4.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple

from tallystream.metric_types import QUANTILES
from tallystream.validation import free
from tallystream_aggregator.sinks.base import RESERVED, filled

if TYPE_CHECKING:
    from collections.abc import Mapping

Kind = Literal["counter", "gauge", "untyped"]

LIVING_LIVES = "tallystream_living_lives"
LIVING_INSTANCES = "tallystream_living_instances"
ENDED_INSTANCES = "tallystream_ended_instances"
SILENT_INSTANCES = "tallystream_silent_instances"
RETIRED_LIVES = "tallystream_retired_lives"
OVERFLOW = "tallystream_sum_overflow"
SUM_TIME = "tallystream_sum_time_seconds"
SUMS = "tallystream_sums"

OWN_FAMILIES = {
    LIVING_LIVES: "Living lives whose newest snapshot has the metric.",
    LIVING_INSTANCES: "Different instance IDs of the living lives.",
    ENDED_INSTANCES: "Instances of the app whose last record said that they end.",
    SILENT_INSTANCES: "Instances of the app that stopped without saying so.",
    RETIRED_LIVES: "Forgotten lives whose counts are part of the sum.",
    OVERFLOW: "1 where a number of the sum is beyond its range; its largest or smallest is shown.",
    SUM_TIME: "As of when the sum is, by the table's clock, epoch seconds.",
    SUMS: "Sums that are shown.",
}
"""Families in addition to those of the metrics, and their help. Each has a sample for each sum (OVERFLOW: for those
with an overflow), except SUMS, the number of sums, and those of ended and silent instances, which have one for each
app. A metric whose family would have one of these names gets `_value`."""

_OF_EVERY_SUM = {
    "lives": LIVING_LIVES,
    "instances": LIVING_INSTANCES,
    "ended": ENDED_INSTANCES,
    "silent": SILENT_INSTANCES,
    "retired": RETIRED_LIVES,
    "overflow": OVERFLOW,
}
_TOTALS = {("counter", "count"), ("meter", "count"), ("float_counter", "sum"), ("position", "position")}
"""The types and fields that are counters."""
_VALUES = {("gauge", "sum"), ("updown", "sum")}
"""The types and fields whose family has the name of the metric."""

LABELS = RESERVED | {"name", "quantile", "le"}
"""Labels of Tallystream and Prometheus. A user's tag with one of these names gets a prefix."""

_LABEL = re.compile(r"(?!__|U__)[A-Za-z_][A-Za-z0-9_]*")


class Place(NamedTuple):
    """The place of a field's value: a sample of a family of this kind, with labels of its own: `quantile` or `le`."""

    family: str
    kind: Kind
    labels: tuple[tuple[str, str], ...] = ()


def family_name(name: str) -> str:
    """Return a metric's name in the characters that Prometheus allows. Colons are left for recording rules."""
    fitting = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return fitting if re.match(r"[A-Za-z_]", fitting) else f"_{fitting}"


@lru_cache(maxsize=65_536)  # each exposition looks up the same fields again
def place(name: str, metric_type: str, field: str) -> Place:
    """Return the place of a field that a sum of this type may have."""
    if field in _OF_EVERY_SUM:
        return Place(_OF_EVERY_SUM[field], "gauge")
    family = family_name(name)
    kind: Kind = "gauge"
    if metric_type == "buckets":  # each field is a bound, or the count
        return Place(family, "untyped", (("le", "+Inf" if field == "count" else field),))
    if metric_type == "timer" and not field.endswith("_rate"):  # a rate is in calls a second, not in seconds
        family = _with(family, "_seconds")
    if (metric_type, field) in _TOTALS:
        family, kind = _with(family, "_total"), "counter"
    elif field == "count":
        family, kind = family + "_count", "untyped"  # some parsers add _total to the name of every counter
    elif field not in QUANTILES and (metric_type, field) not in _VALUES:
        family += f"_{field}"
    own = (("quantile", str(QUANTILES[field])),) if field in QUANTILES else ()
    return Place(family + "_value" if family in OWN_FAMILIES else family, kind, own)


def labels(name: str, tags: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of a sum's samples: `name`, and its tags, including `app` and `metric_type`."""
    return {"name": filled(name)} | {
        label_name(key if key in RESERVED else free(key, LABELS - RESERVED)): filled(value)
        for key, value in sorted(tags.items())
    }


@lru_cache(maxsize=65_536)
def label_name(key: str) -> str:
    """Return a tag's key as the name of a label, escaped if the key is not a valid name. The escaping is reversible.

    Source: "Escaping schemes", `values` (prometheus.io/docs/instrumenting/escaping_schemes): a prefix `U__`, `__` for
    an underscore, `_HEX_` for any other character that is not an ASCII letter or digit.
    """
    return key if _LABEL.fullmatch(key) else "U__" + "".join(_escaped(char) for char in key)


def _with(base: str, end: str) -> str:
    return base if base.endswith(end) else base + end


def _escaped(char: str) -> str:
    if char == "_":
        return "__"
    return char if char.isascii() and char.isalnum() else f"_{ord(char):x}_"
