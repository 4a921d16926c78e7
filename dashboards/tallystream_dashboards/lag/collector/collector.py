"""Run rounds, and handle and log that the broker or the store is unavailable."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING

from tallystream_aggregator.sinks.base import SinkUnavailableError
from tallystream_dashboards.lag.collector.kafka_admin import BrokerUnavailableError
from tallystream_dashboards.lag.collector.recorder import Recorder, WriteBuffer

if TYPE_CHECKING:
    from collections.abc import Callable

    from tallystream_aggregator.sinks.base import Sink
    from tallystream_dashboards.lag.collector.tracker import Watched
    from tallystream_dashboards.lag.status import Rules


def next_round(first: float, interval: float, now: float) -> tuple[float, int]:
    """Return when the next round is due, and how many rounds were missed during the one that has just ended.

    Rounds are due at `first`, `first` + `interval`, … (seconds of a monotonic clock). Rounds that are due during
    another round are skipped.
    """
    due = first + interval
    if now <= due:
        return due, 0
    missed = math.ceil((now - due) / interval)
    return due + missed * interval, missed


log = logging.getLogger(__name__)


class Collector:
    """Run rounds and count them. An outage of the broker or the store is logged when it begins and when it ends.

    Args:
        watch: returns the results of one round; raises BrokerUnavailableError.
        sink: the points are written to it.
        publish: called with the results of each round.
        tidy: called each time the points have been written; raises SinkUnavailableError.
        rules: the rules of the statuses; they are stored with each round.
    """

    def __init__(
        self,
        watch: Callable[[], Watched],
        sink: Sink,
        *,
        publish: Callable[[Watched], None] = lambda _: None,
        tidy: Callable[[], None] = lambda: None,
        rules: Rules | None = None,
    ) -> None:
        self._watch = watch
        self._sink = sink
        self._publish = publish
        self._tidy = tidy
        self._recorder = Recorder(rules)
        self._set_up = False
        self._buffer = WriteBuffer()
        self._broker = _Outages("the broker")
        self._store = _Outages("the store")
        self._problems: tuple[str, ...] = ()
        self.rounds = self.rounds_skipped = self.points_written = 0

    def round(self) -> bool:
        """Request the lag and write the points once; return whether both succeeded.

        Raises:
            StoppedError: a stop was requested meanwhile.
            ConfigError: the store's settings can't work.
        """
        self.rounds += 1
        asked = self._ask_broker()
        return self._write() and asked

    @property
    def points_dropped(self) -> int:
        """The number of points that were dropped because the store was unavailable for too long."""
        return self._buffer.dropped

    def summary(self) -> str:
        """Return the counts in one line."""
        return (
            f"{self.rounds:,} rounds, {self.points_written:,} points written; "
            f"broker unavailable in {self._broker.count:,} rounds, store in {self._store.count:,}, "
            f"{self.rounds_skipped:,} rounds skipped, "
            f"{self.points_dropped:,} points dropped, {len(self._buffer):,} unwritten"
        )

    def _ask_broker(self) -> bool:
        try:
            found = self._watch()
        except BrokerUnavailableError as error:
            self._broker.failed(error)
            return False
        self._broker.answered()
        if found.problems != self._problems:
            self._problems = found.problems
            log.warning("not read: %s", "; ".join(found.problems) or "nothing any more, all groups are read again")
        self._buffer.add(
            self._recorder.round(
                found.states,
                found.places,
                found.ts_ms,
                took_s=found.took_s,
                problems=found.problems,
                complete=found.complete,
            )
        )
        self._publish(found)
        return True

    def _write(self) -> bool:
        try:
            if not self._set_up:
                self._sink.setup()
                self._set_up = True
            self.points_written += self._buffer.write_to(self._sink)
            self._tidy()
        except SinkUnavailableError as error:
            self._store.failed(error)
            return False
        self._store.answered()
        return True


class _Outages:
    """Logs when something becomes unavailable and when it is available again, and counts the rounds between."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._since = 0
        self.count = 0

    def failed(self, error: Exception) -> None:
        if not self._since:
            log.warning("%s is unavailable; trying again every round: %s", self._what, error)
        self._since += 1
        self.count += 1

    def answered(self) -> None:
        if self._since:
            log.warning("%s is available again after %d rounds", self._what, self._since)
            self._since = 0
