"""Downsample old history to one round in five minutes. Retention is the store's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream_dashboards.lag.storage import ALL, ROUNDS, SLOT_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tallystream_aggregator.sinks.base import Deletable, PointReader

INTERVAL_MS = 600_000
MAX_ROUND_AGE_MS = 2 * 86_400_000
"""How much history is checked each time, in ms: earlier runs of the collector may not have downsampled it."""


def spans(times_ms: Sequence[int], *, before_ms: int) -> list[tuple[int, int]]:
    """Return the spans to delete, begin <= time < end: all after the first round of each slot that ends by `before_ms`.

    `times_ms` are the times of the rounds. The first round of a slot has all its points, so it represents the slot.
    """
    slots: dict[int, list[int]] = {}
    for ts_ms in times_ms:
        slots.setdefault(ts_ms // SLOT_MS, []).append(ts_ms)
    return [
        (rounds[0] + 1, (slot + 1) * SLOT_MS)
        for slot, rounds in sorted(slots.items())
        if len(rounds) > 1 and (slot + 1) * SLOT_MS <= before_ms
    ]


class Downsampler:
    """Downsample history older than `full_ms` every ten minutes; 0 keeps everything. `clock` returns epoch ms."""

    def __init__(self, store: Deletable, reader: PointReader, *, full_ms: int, clock: Callable[[], int]) -> None:
        self._store = store
        self._reader = reader
        self._full_ms = full_ms
        self._clock = clock
        self._due_ms = 0

    def run(self) -> None:
        """Delete the spans that are due.

        Raises:
            SinkUnavailableError: the store does not answer; the remaining spans are deleted the next time.
        """
        now_ms = self._clock()
        if not self._full_ms or now_ms < self._due_ms:
            return
        before_ms = now_ms - self._full_ms
        rounds = self._reader.read(ROUNDS, ("groups",), start_ms=before_ms - MAX_ROUND_AGE_MS, end_ms=before_ms)
        for start_ms, end_ms in spans(rounds[0].times_ms if rounds else [], before_ms=before_ms):
            for measurement in ALL:
                self._store.delete(measurement, start_ms=start_ms, end_ms=end_ms)
        self._due_ms = now_ms + INTERVAL_MS
