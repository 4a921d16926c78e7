"""The life of a loop in one task: claim the shard, run epochs, and begin again after an error.

There is one procedure for starts, takeovers and errors: open a writer, which fences earlier ones; look up what is
published; make the state of it again; publish a claim; go on. A loop whose writer is fenced begins again only in an
epoch with a newer claim.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

import msgspec

from tallystream.errors import TallystreamError
from tallystream_aggregator.kafka.topic_selection import Offsets
from tallystream_aggregator.stream.broker import (
    BrokerError,
    LostRecordsError,
    Output,
    StoppedError,
    UnavailableError,
    bounds_of,
)
from tallystream_aggregator.stream.hanging import end_open
from tallystream_aggregator.stream.pace import MAX_FAILURES
from tallystream_aggregator.stream.positions import (
    HangingTransactionError,
    encode,
    key_of,
    newest_row,
    require_highest,
    require_visible,
    visible_row,
)
from tallystream_aggregator.stream.truncation import truncations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tallystream_aggregator.stream.broker import Broker, Chunk, Source, Writer
    from tallystream_aggregator.stream.pace import Pace
    from tallystream_aggregator.stream.positions import Claim, LastRecords, LoopId, PositionsRow
    from tallystream_aggregator.table.storage import Store

log = logging.getLogger(__name__)

POLL_S = 0.1
"""How long a read waits for a first record. A stop is noticed after it."""

MIN_BACK_OFF_S, MAX_BACK_OFF_S = 0.1, 10.0

LOST_MARKERS_S = 5.0
"""After this time, the markers of a transaction of the loop's own ID are lost."""

OUTAGE_S = 2.0
"""During a commit that takes so long, a broker may have been killed and have started again."""

HANGING_S = 60.0
"""After this time, an open transaction is of another ID, and hangs. The broker ends others after half of it."""


class Timer(Protocol):
    """The time of the loop."""

    def monotonic(self) -> float:
        """Return seconds that never decrease."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class StepFailedError(TallystreamError):
    """Kafka refuses the transaction of a single record, again and again."""


class EpochRow(msgspec.Struct):
    """What a shard, or the combiner after the last one, did since the end of the epoch before: counts and seconds.

    `records` were read, `sums` and `rows` (of `metrics-table`) were published. `restarts` counts how often the loop
    began at what is published. `seconds` are all, `waited_s` those of waiting, and `state_bytes` is the size of the
    stored table. `stopped` tells that a stop is requested: no step follows. `positions` are those at the epoch's end,
    all of which is published. They are empty if it ended before the published positions were reached.
    """

    shard: int
    steps: int = 0
    records: int = 0
    sums: int = 0
    rows: int = 0
    restarts: int = 0
    seconds: float = 0.0
    waited_s: float = 0.0
    state_bytes: int = 0
    stopped: bool = False
    positions: Offsets = {}


class EpochLoop(ABC):
    """A loop in one process, over several epochs. For one thread at a time.

    Args:
        loop: who the loop is.
        broker: access to Kafka.
        timer: the time.
        stopped: whether a stop was requested.
        pace: when a step begins, and how large it may be.
    """

    def __init__(self, loop: LoopId, broker: Broker, timer: Timer, stopped: Callable[[], bool], pace: Pace) -> None:
        self._loop, self._broker, self._timer, self._stopped = loop, broker, timer, stopped
        self._pace = pace
        self._report, self._reported_s = EpochRow(loop.number), timer.monotonic()
        self._claim: Claim = (0, 0)
        self._last: PositionsRow | None = None
        self._open_clients: tuple[Writer, Source] | None = None
        self._last_records: LastRecords = {}
        self._step_records = 0
        self._back_off_s = MIN_BACK_OFF_S

    @abstractmethod
    def is_current(self, store: Store) -> bool:
        """Tell whether what is in memory continues what the store has."""

    @abstractmethod
    def _source(self) -> Source:
        """Return a new source."""

    @abstractmethod
    def _restore(self, store: Store, source: Source) -> None:
        """Make the state at `self._last` again. If that is None, nothing is published: publish the begin."""

    @abstractmethod
    def _take_step(self, source: Source, timeout_s: float) -> None:
        """Read what is there, wait for up to `timeout_s` if nothing is, and publish what it changes."""

    @abstractmethod
    def _end_epoch(self, store: Store) -> None:
        """Publish the rest, and store the state."""

    def run_epoch(self, store: Store, claim: Claim, seconds: float) -> EpochRow:
        """Run for `seconds`, or until a stop, and store the state at the end. Return what was done.

        If what is published can't be reached by then, the state stays as it was.

        Raises:
            FencedError: another writer has the shard.
            LostRecordsError: unread records were deleted.
            StepFailedError: Kafka refuses the step of a single record.
            TallystreamError: what is published can't be continued; the message has the remedy.
        """
        self._claim = claim
        end_s = self._timer.monotonic() + seconds
        if self._open_clients is not None and not self.is_current(store):
            self.close()
        while True:
            try:
                self._run(store, claim, end_s)
            except StoppedError:
                self.close()  # what is published was not reached
                break
            except BrokerError as error:
                self.close()
                log.warning("%s begins again at what is published: %s", self._loop.transactional_id, error)
                back_off_s, self._back_off_s = self._back_off_s, min(2 * self._back_off_s, MAX_BACK_OFF_S)
                if not self._wait(back_off_s, end_s):
                    break
            except BaseException:
                self.close()  # the table may have what is not published
                raise
            else:
                break
        report, before_s, self._reported_s = self._report, self._reported_s, self._timer.monotonic()
        report.seconds = self._reported_s - before_s
        report.stopped, self._report = self._stopped(), EpochRow(self._loop.number)
        return report

    def run_between(self, next_begins: Callable[[], bool]) -> None:
        """Take steps after an epoch until a stop, or until the next one begins: then its end stores them.

        After any error the next epoch begins again at what is published, and meets a lasting error itself.
        """
        if self._open_clients is None:
            return  # the epoch has ended without them
        try:
            self._take_steps(self._open_clients[1], float("inf"), next_begins)
        except Exception as error:  # noqa: BLE001 (nobody waits for this call)
            log.warning("%s begins again with the next epoch: %s", self._loop.transactional_id, error)
            self.close()

    def close(self) -> None:
        """Drop the state and release the connections. The next epoch begins again at what is published."""
        clients, self._open_clients = self._open_clients, None
        for client in clients or ():
            client.close()

    def _run(self, store: Store, claim: Claim, end_s: float) -> None:
        if self._open_clients is None:
            self._open(store, claim)
            self._report.restarts += 1
        else:
            self._wait_visible(LOST_MARKERS_S)  # else the loop begins again, and ends what is open
        assert self._open_clients is not None
        self._take_steps(self._open_clients[1], end_s, lambda: False)
        self._end_epoch(store)
        self._back_off_s = MIN_BACK_OFF_S

    def _take_steps(self, source: Source, end_s: float, is_over: Callable[[], bool]) -> None:
        timer, pace, report = self._timer, self._pace, self._report
        while not self._stopped() and not is_over() and (now := timer.monotonic()) < end_s:
            wait_s = min(pace.begins_s - now, POLL_S, end_s - now)
            if wait_s > 0:
                timer.sleep(wait_s)
                report.waited_s += wait_s
            else:
                self._take_step(source, min(POLL_S, end_s - now))

    def _read(self, source: Source, max_records: int, timeout_s: float) -> list[Chunk]:
        """Read what is there, and require that a new leader has all that was read before it."""
        chunks = source.read(max_records, timeout_s)
        for place, _, _, ends in chunks:
            for end in ends:
                before = self._last_records.get(place)
                if before is not None and before.epoch != end.epoch:
                    self._require_untruncated({place: before})
                self._last_records[place] = end
        return chunks

    def _require_untruncated(self, last_records: LastRecords, stopped: Callable[[], bool] = lambda: False) -> None:
        """Require that the logs have what was read, up to these records.

        Raises:
            LostRecordsError: one has not.
        """
        for place, at in truncations(self._broker, last_records, stopped).items():
            raise LostRecordsError(place, last_records[place].offset + 1, bounds_of(self._broker, place), at)

    def _wait(self, seconds: float, end_s: float) -> bool:
        """Wait, and return True, or False as soon as the epoch ends or a stop is requested."""
        until_s = self._timer.monotonic() + seconds
        while not self._stopped() and (now := self._timer.monotonic()) < end_s:
            if now >= until_s:
                return True
            self._timer.sleep(min(POLL_S, until_s - now))
        return False

    def _open(self, store: Store, claim: Claim) -> None:
        """Fence earlier writers, and go on from what is published.

        The writer comes first: what an earlier one has committed until then is found, and later it can't commit. Only
        a claim is looked up before: Spark of a replaced driver runs a fenced task again, which must not fence others.
        """
        require_highest(claim, visible_row(self._broker, self._loop.rows, self._loop.number))
        self._open_clients = self._broker.writer(self._loop.transactional_id), self._source()
        self._last, self._step_records = self._published(claim), 0
        if self._last is not None:
            self._publish_claim(self._last)
        self._restore(store, self._open_clients[1])

    def _publish_claim(self, last: PositionsRow) -> None:
        """Publish the positions again, with the claim. It has no record that Kafka could refuse, so it is no step."""
        assert self._open_clients is not None
        self._last = row = msgspec.structs.replace(last, claim=self._claim, step=last.step + 1, restoring=True)
        self._open_clients[0].commit([Output(self._loop.rows, key_of(row.shard), encode(row))])

    def _published(self, claim: Claim) -> PositionsRow | None:
        """Return the newest positions row, or None if nothing is published."""
        assert self._open_clients is not None
        with suppress(HangingTransactionError):
            self._wait_visible(LOST_MARKERS_S)
        end_open(self._broker, self._loop, self._open_clients[0], claim)
        try:
            self._wait_visible(HANGING_S)
        except HangingTransactionError as error:
            raise TallystreamError(str(error)) from error
        published = newest_row(self._broker, self._loop.rows, self._loop.number)
        require_highest(claim, published)
        return published

    def _wait_visible(self, seconds: float) -> None:
        """Wait until no transaction is open in the loop's own partitions.

        Raises:
            HangingTransactionError: one is still open after this time.
        """
        until_s = self._timer.monotonic() + seconds
        while True:
            try:
                return require_visible(self._broker, self._loop.own)
            except HangingTransactionError:
                if self._timer.monotonic() >= until_s:
                    raise
                self._sleep(POLL_S)

    def _sleep(self, seconds: float) -> None:
        if self._stopped():
            raise StoppedError
        self._timer.sleep(seconds)

    def _commit(self, records: Iterable[Output], row: PositionsRow) -> None:
        """Write the records of a step, which end with `row`, in one transaction.

        Raises:
            FencedError: another writer has the shard.
            StepFailedError: Kafka refuses the step of a single record.
            BrokerError: it failed, and the loop begins again.
        """
        assert self._open_clients is not None
        began_s = self._timer.monotonic()
        try:
            self._open_clients[0].commit(records)
        except BrokerError as error:
            # A commit that timed out may be too large, but never stops the loop: it may be an outage of one partition.
            if self._pace.failed(self._step_records, refused=not isinstance(error, UnavailableError)):
                at = {} if self._last is None else self._last.positions
                raise StepFailedError(
                    f"a step of one record failed {MAX_FAILURES} times, after the positions {at}: {error} Correct what "
                    "the broker refuses; the table continues there."
                ) from error
            raise
        seconds = self._timer.monotonic() - began_s
        self._pace.published(seconds, self._step_records)
        self._last, self._step_records = row, 0
        self._back_off_s = MIN_BACK_OFF_S
        self._report.steps += 1
        if seconds > OUTAGE_S:
            self._wait_visible(LOST_MARKERS_S)
