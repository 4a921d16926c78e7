"""Reads topics by offset: it joins no consumer group and commits nothing.

Our own topics are read with `read_committed`, and the aggregator's input as the aggregator reads it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tallystream.errors import TallystreamError
from tallystream_aggregator.stream.reading import backwards, read_range
from tallystream_aggregator.verify.advance import PROGRESS_EVERY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tallystream_aggregator.stream.broker import Bounds, Broker, Place, RawRecord

MAX_WAIT_S = 60.0
"""The longest wait for the end of a transaction, in seconds."""

PAUSE_S = 0.2


def committed(
    broker: Broker, place: Place, bounds: Bounds, progress: Callable[[int, int], object] = lambda _done, _all: None
) -> Iterator[RawRecord]:
    """Yield every committed record of a partition within these bounds.

    `progress` is called after every `PROGRESS_EVERY` records with their number, and about how many there are.

    Raises:
        BrokerError: the broker sends nothing, or records were deleted before they were read.
    """
    for number, record in enumerate(read_range(broker, place, bounds), 1):
        yield record
        if number % PROGRESS_EVERY == 0:
            progress(number, bounds.stable - bounds.first)


def settled(broker: Broker, place: Place) -> Bounds | None:
    """Return the bounds of a partition when all transactions that are open there now have ended; None without it.

    Until then a reader does not see what was committed after the first record of an open transaction.

    Raises:
        TallystreamError: a transaction does not end, or the broker did not answer.
    """
    now = found = broker.bounds([place]).get(place)
    deadline = time.monotonic() + MAX_WAIT_S
    while now is not None and found is not None and found.stable < now.end:
        if time.monotonic() > deadline:
            raise TallystreamError(f"{place}: a transaction has been open for {MAX_WAIT_S:g} s.")
        time.sleep(PAUSE_S)
        found = broker.bounds([place]).get(place)
    return found


def newest(broker: Broker, place: Place, key: bytes) -> bytes | None:
    """Return the newest value of a key when all transactions that are open now have ended, None if there is none.

    Raises:
        TallystreamError: as `settled` and `committed`.
    """
    bounds = settled(broker, place)
    for records in () if bounds is None else backwards(broker, place, bounds):
        for _, _, found, value in reversed(records):
            if found == key and value is not None:
                return value
    return None
