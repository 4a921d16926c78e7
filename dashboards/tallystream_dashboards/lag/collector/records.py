"""What became of the records of each consumer, for the rounds of the collector."""

from __future__ import annotations

import logging
from contextlib import closing
from dataclasses import replace
from threading import Thread
from typing import TYPE_CHECKING

from tallystream.errors import TallystreamError
from tallystream_dashboards.lag.samples import MAX_GAP_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tallystream.process.signals import SignalSafeEvent
    from tallystream_aggregator.sinks.base import Point, PointReader

log = logging.getLogger(__name__)

PAUSE_S = 30.0
"""How long the store is not read after it was read, in seconds."""


class Records:
    """The points that `compare` returned last. It reads the store, at a time in epoch ms. `clock` returns seconds.

    It runs in a thread of its own: with many consumers, or a slow store, it takes longer than a round. `error` is what
    ended that thread before a stop: an error that is not the store's.
    """

    def __init__(
        self,
        open_store: Callable[[], PointReader],
        compare: Callable[[PointReader, int], Iterable[Point]],
        clock: Callable[[], float],
    ) -> None:
        self._open_store = open_store
        self._compare = compare
        self._clock = clock
        self._newest: tuple[Point, ...] = ()
        self._failed = False
        self.error: BaseException | None = None

    def start(self, stop: SignalSafeEvent) -> None:
        """Compare again and again, until a stop. An `error` sets `stop`."""
        Thread(target=self._run, args=(stop,), name="tallystream-records", daemon=True).start()

    def _run(self, stop: SignalSafeEvent) -> None:
        try:
            while not stop.is_set():
                self.read()
                stop.wait(PAUSE_S)
        except BaseException as error:  # noqa: BLE001 (the collector raises it)
            self.error = error
            stop.set()

    def read(self) -> None:
        """Compare once. That the store can't be read is logged when it begins."""
        try:
            with closing(self._open_store()) as reader:
                self._newest = tuple(self._compare(reader, round(self._clock() * 1000)))
        except TallystreamError as error:
            if not self._failed:
                log.warning("the store can't be read, so no records are compared: %s", error)
            self._failed = True
        else:
            self._failed = False

    def at(self, ts_ms: int) -> tuple[Point, ...]:
        """Return the points for a round at that time, without those that are too old."""
        return tuple(replace(one, ts_ms=ts_ms) for one in self._newest if abs(ts_ms - one.ts_ms) <= MAX_GAP_MS)
