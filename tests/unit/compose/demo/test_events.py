"""The events of the demonstration."""

from __future__ import annotations

import msgspec

from tallystream_cli.demo.events import ROWS, Flight, read_events


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
