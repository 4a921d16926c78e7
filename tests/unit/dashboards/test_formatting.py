"""Numbers, times and names as text."""

from __future__ import annotations

import json
import unicodedata
from datetime import UTC
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystream_dashboards import formatting
from tallystream_dashboards.printable import printable, printable_json


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, formatting.DASH),
        (0, "0"),
        (1234567, "1,234,567"),
        (9_007_199_254_740_993, "9,007,199,254,740,993"),
        (2.0, "2"),
        (1234.56, "1,234.6"),
        (3.14159, "3.14"),
        (0.00123, "0.00123"),
        (-5, "-5"),
        (1e18, "1,000,000,000,000,000,000"),
        (1e306, "1e+306"),
        (-1.7976931348623157e308, "-1.7976931348623157e+308"),
        (2**80, "1,208,925,819,614,629,174,706,176"),
    ],
)
def test_numbers(value: float | None, text: str) -> None:
    """Integers are exact, with separators. Other numbers are rounded. Of floats from 1e21 on the text is short."""
    assert formatting.number(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "0 s"),
        (0.9, "0 s"),
        (59, "59 s"),
        (60, "1 min"),
        (200, "3 min 20 s"),
        (7500, "2 h 5 min"),
        (273_600, "3 d 4 h"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    """A duration has at most two units and is never negative."""
    assert formatting.duration(seconds) == text


@pytest.mark.parametrize(("count", "text"), [(0, "0 records were"), (1, "1 record was"), (1200, "1,200 records were")])
def test_a_noun_and_its_verb_agree_with_the_number(count: int, text: str) -> None:
    """One record was read; several were."""
    assert formatting.counted(count, "record", "was", "were") == text


def test_rates() -> None:
    """A rate has its unit. An unknown rate is a dash."""
    assert (formatting.per_second(2000.04), formatting.per_second(None)) == ("2,000/s", formatting.DASH)
    assert [formatting.rate(value) for value in (31.62, 0.04, 1234.56, 7)] == ["31.6", "0", "1,234.6", "7"]
    assert formatting.per_second(1e306) == "1e+306/s"


def test_a_time_of_another_day_has_its_date() -> None:
    """Times are in the given time zone. A time that is not today's has its date."""
    noon = 1_700_000_000_000  # 2023-11-14 22:13:20 UTC
    assert formatting.clock(noon, UTC, now_ms=noon) == "22:13:20 UTC"
    assert formatting.clock(noon, UTC, now_ms=noon + 86_400_000) == "2023-11-14 22:13:20 UTC"
    assert formatting.clock(noon, ZoneInfo("Asia/Tokyo"), now_ms=noon) == "07:13:20"


@pytest.mark.parametrize("time_ms", [1_790_000_000_000_000, 2**63 - 1, -(10**17), 253_402_300_799_999])
def test_a_time_beyond_the_calendar_is_a_number(time_ms: int) -> None:
    """A record may have a timestamp in microseconds, or any other number. It has milliseconds instead of a date."""
    assert formatting.clock(time_ms, ZoneInfo("Asia/Tokyo"), now_ms=1_700_000_000_000) == f"{time_ms} ms"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (0.000_003_21, "3.21 µs"), (0.0125, "12.5 ms"), (0.9996, "1 s"), (1.5, "1.5 s"), (75.2, "1 min 15 s")],
)
def test_a_mean_time_has_a_unit(seconds: float, text: str) -> None:
    """A mean time has three digits and a unit. From a minute on it is a duration."""
    assert formatting.mean_time(seconds) == text


def test_printable_text_is_not_changed() -> None:
    """It may have letters of any language, symbols, emoji and spaces."""
    text = "orders-1 één Заказы 注文 €☕ [b]\\n"
    assert printable(text) == text


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=()), max_size=50))
def test_the_result_is_always_printable(text: str) -> None:
    """It has no control character, and UTF-8 can encode it."""
    for shown in (printable(text), printable_json(json.dumps(text, ensure_ascii=False))):
        assert not {unicodedata.category(letter) for letter in shown} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
        shown.encode()


@settings(deadline=None)
@given(st.text(max_size=50))
def test_escaped_json_has_the_same_value(text: str) -> None:
    """A program reads the original text from it."""
    assert json.loads(printable_json(json.dumps({"group": text}, ensure_ascii=False))) == {"group": text}
