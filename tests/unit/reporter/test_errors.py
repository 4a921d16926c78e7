"""Errors: of options, of what can't be decoded, of numbers, and how often they are logged."""

from __future__ import annotations

import logging
from decimal import Decimal
from fractions import Fraction
from http import HTTPStatus
from typing import Any

import msgspec
import numpy as np
import pytest

from support.malformed import UNDECODABLE
from tallystream import ConfigError, MetricRegistry
from tallystream.decoding import json_decoder, msgpack_decoder
from tallystream.log_throttle import RateLimitFilter
from tallystream.testing import ManualClock, find


@pytest.mark.parametrize("value", ["", None])
@pytest.mark.parametrize("field", ["INFLUXDB_TOKEN", "TALLYSTREAM_PAGE_PASSWORD_FILE", "--bucket"])
def test_an_empty_variable_or_option_is_not_set(field: str, value: str | None) -> None:
    """For an empty variable or option, the message says that it is not set."""
    assert str(ConfigError(field, value, "set it")) == f"{field} is not set; set it."


@pytest.mark.parametrize(("field", "value"), [("app", ""), ("--port", 0), ("INFLUXDB_ORG", "a b"), ("--kafka", "***")])
def test_any_other_value_is_in_the_message(field: str, value: object) -> None:
    """All other values are shown, also empty arguments of a Python call."""
    assert str(ConfigError(field, value, "give another")) == f"{field}: {value!r} can't be used; give another."


class Row(msgspec.Struct):
    """A row with one required field."""

    number: int
    app: str = ""


@pytest.mark.parametrize("value", UNDECODABLE.values(), ids=UNDECODABLE)
def test_invalid_json_is_a_decode_error(value: bytes) -> None:
    """Malformed JSON, another structure, invalid UTF-8 and deep nesting all raise DecodeError."""
    with pytest.raises(msgspec.DecodeError):
        json_decoder(Row)(value)


def test_a_text_with_a_lone_surrogate_is_a_decode_error() -> None:
    """Command line arguments that are not UTF-8 are such texts."""
    with pytest.raises(msgspec.DecodeError):
        json_decoder(Row)('{"number":1,"x":"\udcff"}')


def test_messagepack_that_is_not_utf8_is_a_decode_error() -> None:
    """Invalid UTF-8 in MessagePack, for example in a damaged file, raises DecodeError."""
    with pytest.raises(msgspec.DecodeError):
        msgpack_decoder(str)(b"\xa2\xff\xff")
    assert msgpack_decoder(str)(b"\xa2ab") == "ab"


def test_an_invalid_field_is_named() -> None:
    """The ValidationError of msgspec, which names the field, is not replaced."""
    with pytest.raises(msgspec.ValidationError, match=r"\$\.number"):
        json_decoder(Row)(b'{"number":"x"}')
    assert json_decoder(Row)(b'{"number":3,"other":[]}') == Row(3)


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
    if expected == int(expected):
        registry.counter("counted").inc(given)
        registry.meter("marked").mark(given)
        registry.position("orders", 0).advance(0, given)
    snapshot = registry.snapshot()
    read = msgspec.json.decode(msgspec.json.encode(snapshot))
    assert len(read) >= 5
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


@pytest.mark.parametrize("number", [Fraction(10**400), Fraction(-(10**400)), Decimal("sNaN"), Decimal("inf")])
def test_a_number_of_another_type_that_is_not_finite_is_refused_as_a_float_is(
    registry: MetricRegistry, number: Any
) -> None:
    """No float is as large as the fraction. A gauge keeps such a value out of the snapshot."""
    for update in (registry.updown("u").inc, registry.histogram("h").update, registry.timer("t").update):
        with pytest.raises(ValueError, match=r"^the (up-down counter|histogram|timer) '[uht]' can't (change by|take) "):
            update(number)
    with pytest.raises(TypeError, match="is not a whole number"):
        registry.counter("c").inc(number)
    registry.gauge("g").set(number)
    assert find(registry, "g") is None


def test_each_kind_is_logged_once_a_minute() -> None:
    """A message is not repeated within a minute; other kinds, and the same one later, are logged."""
    clock = ManualClock()
    rate_limit = RateLimitFilter(clock.monotonic)

    def logged(kind: str) -> bool:
        return rate_limit.filter(
            logging.LogRecord("n", logging.ERROR, "", 0, "%s [%s] %s", (kind, "client", "text"), None)
        )

    assert [logged("FAIL"), logged("FAIL"), logged("GETPID")] == [True, False, True]
    clock.advance(61)
    assert [logged("FAIL"), logged("FAIL")] == [True, False]


def test_an_error_is_of_the_same_kind_as_another_one_with_the_same_text() -> None:
    """As a loop logs it that meets an outage again and again."""
    rate_limit = RateLimitFilter(ManualClock().monotonic)

    def logged(text: str) -> bool:
        error = (OSError(text),)
        return rate_limit.filter(logging.LogRecord("n", logging.ERROR, "", 0, "%s; trying again", error, None))

    assert [logged("no answer"), logged("no answer"), logged("refused")] == [True, False, True]


def test_kinds_are_forgotten_when_they_would_be_logged_again() -> None:
    """A kind may have a text that a client of the application chose, so there may be any number of them."""
    clock = ManualClock()
    rate_limit = RateLimitFilter(clock.monotonic)
    for number in range(1000):
        clock.advance(1)
        assert rate_limit.filter(logging.LogRecord("n", logging.ERROR, "", 0, "%s", (f"/{number}",), None))
    assert len(rate_limit._last) <= 120
