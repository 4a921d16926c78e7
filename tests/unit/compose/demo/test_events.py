"""The events of the demonstration."""

from __future__ import annotations

import msgspec
import pytest

from tallystream_cli.demo.events import ROWS, Event, Flight, read_events, repeat


def test_the_first_event() -> None:
    """It is the first flight of 2013. Its key is carrier and number, and its delays are integers, in minutes."""
    first = read_events(1)[0]
    assert first.key == b"UA1545"
    flight = msgspec.json.decode(first.value, type=Flight)
    assert (flight.origin, flight.dest, flight.delay, flight.arr_delay) == ("EWR", "IAH", 2, 11)


def test_a_cancelled_flight_has_no_delay() -> None:
    """A missing delay is left out; it is not 0."""
    delays = [msgspec.json.decode(event.value, type=Flight).delay for event in read_events(2000)]
    assert None in delays
    assert 0 in delays


def test_all_rows_are_read() -> None:
    """There are 336,776 events."""
    assert len(read_events()) == ROWS


@pytest.mark.parametrize(("number", "expected"), [(0, ""), (2, "ab"), (3, "abc"), (8, "abcabcab")])
def test_repeat(number: int, expected: str) -> None:
    """After the last event comes the first again, up to the requested number."""
    events = [Event(b"", letter.encode()) for letter in "abc"]
    assert b"".join(event.value for event in repeat(events, number)).decode() == expected
