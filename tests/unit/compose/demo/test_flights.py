"""The events: real rows, in order, any number of them."""

from __future__ import annotations

import msgspec
import pytest

from tallystream_cli.demo.dataset import ROWS, Event, Flight, read_events, repeat


def test_the_rows_are_those_of_the_package() -> None:
    """The first flight of 2013, keyed by carrier and number, with whole minutes of delay."""
    first = read_events(1)[0]
    assert first.key == b"UA1545"
    flight = msgspec.json.decode(first.value, type=Flight)
    assert (flight.origin, flight.dest, flight.delay, flight.arr_delay) == ("EWR", "IAH", 2, 11)


def test_a_cancelled_flight_has_no_delay() -> None:
    """What the data set has not is left out, never a zero."""
    delays = [msgspec.json.decode(event.value, type=Flight).delay for event in read_events(2000)]
    assert None in delays
    assert 0 in delays


def test_all_rows_are_read() -> None:
    """The whole data set has 336,776 rows."""
    assert len(read_events()) == ROWS


@pytest.mark.parametrize(("number", "wanted"), [(0, ""), (2, "ab"), (3, "abc"), (8, "abcabcab")])
def test_repeat_goes_round(number: int, wanted: str) -> None:
    """After the last event comes the first, until there are as many as were asked for."""
    events = [Event(b"", letter.encode()) for letter in "abc"]
    assert b"".join(event.value for event in repeat(events, number)).decode() == wanted
