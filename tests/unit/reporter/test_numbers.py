"""Which values metrics accept as numbers."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from http import HTTPStatus
from typing import Any

import msgspec
import numpy as np
import pytest

from tallystream import MetricRegistry, record
from tallystream.bridges.base import Reading


class FixedSource:
    """A source with constant metrics."""

    kind = "fixed"

    def __init__(self, metrics: list[record.Metric]) -> None:
        self._metrics = metrics

    def read(self) -> list[Reading]:
        """Return the metrics."""
        return [Reading(metric) for metric in self._metrics]


@pytest.mark.parametrize("amount", [2**63, 10**309, 10**5000], ids=["2^63", "10^309", "10^5000"])
def test_an_amount_beyond_64_bits_is_refused_where_it_is_counted(registry: MetricRegistry, amount: int) -> None:
    """Such a number in a record, or in a rate, would prevent all metrics of the process from being reported."""
    updown = registry.updown("u")
    for add in (registry.counter("c").inc, registry.meter("m").mark, updown.inc, updown.dec):
        with pytest.raises(ValueError, match=r"can't (grow by|take|change by) more than 2\*\*63 - 1"):
            add(amount)
    assert (registry.counter("c").count, registry.meter("m").count, updown.value) == (0, 0, 0)


NUMBERS: dict[str, tuple[Any, float]] = {
    "numpy.float64": (np.float64(1.5), 1.5),
    "numpy.float32": (np.float32(1.5), 1.5),
    "numpy.int64": (np.int64(3), 3),
    "Fraction": (Fraction(3, 2), 1.5),
    "Decimal": (Decimal("1.5"), 1.5),
    "bool": (True, 1),
    "numpy.bool": (np.True_, 1),
    "whole Decimal": (Decimal(3), 3),
    "whole Fraction": (Fraction(6, 2), 3),
    "IntEnum": (HTTPStatus.OK, 200),
}


@pytest.mark.parametrize(("given", "expected"), NUMBERS.values(), ids=NUMBERS)
def test_numbers_of_other_libraries_are_reported_as_numbers(
    registry: MetricRegistry, given: Any, expected: float
) -> None:
    """The record has an int or a float for every numeric type, so that all metrics can be encoded."""
    registry.gauge("set").set(given)
    registry.gauge("asked", lambda: given)
    registry.updown("moved").inc(given)
    registry.histogram("updated").update(given)
    registry.timer("timed").update(given)
    registry.add_source(
        FixedSource([record.Gauge(name="read", value=given), record.UpDown(name="read.too", value=given)])
    )
    if expected == int(expected):
        registry.counter("counted").inc(given)
        registry.meter("marked").mark(given)
        registry.position("orders", 0).advance(0, given)
    snapshot = registry.snapshot()
    read = msgspec.json.decode(msgspec.json.encode(snapshot))
    assert len(read) >= 8
    for metric in read:
        for field in {"value", "min", "max", "sum", "position"} & metric.keys():
            assert metric[field] == expected
            assert type(metric[field]) in (int, float)
        if metric["name"] in ("counted", "marked"):
            assert metric["count"] == expected
    gauge = registry.gauge("set").read()
    assert gauge is not None
    assert type(gauge.value) in (int, float)


@pytest.mark.parametrize("text", ["a", "1", b"1", [1], None, 1j])
def test_a_value_that_is_not_a_number_is_rejected(registry: MetricRegistry, text: Any) -> None:
    """Every metric raises a TypeError and keeps its value."""
    gauge = registry.gauge("g")
    gauge.set(3)
    updates = [gauge.set, registry.updown("u").inc, registry.histogram("h").update, registry.timer("t").update]
    before = registry.snapshot()
    for update in updates:
        with pytest.raises(TypeError, match=r"^.+ is not a number: give an int, a float, or another real number\.$"):
            update(text)
    assert registry.snapshot() == before
    assert gauge.value == 3
