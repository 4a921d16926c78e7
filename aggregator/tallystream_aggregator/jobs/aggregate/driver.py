"""The driver of the loop: it holds the lease, starts the query, follows it, and starts it again after a failure.

A generation is taken for each start of the query, so whatever an earlier start left behind is fenced, or ends at its
first look at the topic. A driver that was replaced finds its own tasks fenced, and the ledger says why.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING

import msgspec
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from tallystream.errors import TallystreamError
from tallystream_aggregator import files
from tallystream_aggregator.jobs.aggregate.failures import Failure, Remedy, failure_of
from tallystream_aggregator.kafka.ledger import LedgerRow
from tallystream_aggregator.spark.epochs.processor import EpochProcessor
from tallystream_aggregator.spark.epochs.query import start_query
from tallystream_aggregator.spark.epochs.task import EpochSettings, EpochTask, KafkaAccess
from tallystream_aggregator.stream.broker import BrokerError, FencedError
from tallystream_aggregator.stream.positions import LoopId, by_place
from tallystream_aggregator.stream.restore import LoopSettings

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tallystream_aggregator.jobs.aggregate.generations import Generations
    from tallystream_aggregator.jobs.aggregate.query_watch import QueryWatch
    from tallystream_aggregator.jobs.aggregate.settings import AggregateSettings
    from tallystream_aggregator.jobs.aggregate.table_start import TableStart
    from tallystream_aggregator.kafka.lease import Lease
    from tallystream_aggregator.kafka.topic_selection import Offsets
    from tallystream_aggregator.shutdown import StopRequest

log = logging.getLogger(__name__)

POLL_S = 0.25

LOOK_S = 0.5
"""How often Spark's progress is looked at until the first epoch has ended, then twelve times in an epoch at most."""

FINISH_S = 10.0
"""How long a requested stop waits for the end of the epoch. What it interrupts is done again at the next start."""

STEP_S = 2.0
"""How long it waits for the step of a loop that makes its table again."""

MIN_BACK_OFF_S, MAX_BACK_OFF_S = 0.1, 10.0
MAX_FAILURES = 3
"""After so many failures of Spark without a finished epoch between them, the checkpoint is set aside: it may be
damaged, or of another number of shards. After as many more the driver stops: something fails that is none of ours."""


class Driver:
    """Runs the query of a table until a stop is requested, the end of a catch-up, or an error for a person.

    Delivery: each record is in the published sums exactly once, whatever is killed, paused or replaced.
    """

    def __init__(
        self,
        session: SparkSession,
        settings: AggregateSettings,
        access: KafkaAccess,
        table: TableStart,
        *,
        lease: Lease,
        generations: Generations,
        watch: QueryWatch,
        stop: StopRequest,
    ) -> None:
        self._session, self._settings, self._access, self._table_start = session, settings, access, table
        self._lease, self._generations, self._watch, self._stop = lease, generations, watch, stop
        self._back_off_s, self._failures, self._set_aside = MIN_BACK_OFF_S, 0, False
        self._recorded: Offsets = {}

    def run(self) -> int:
        """Run the query until it ends, again after failures that this helps against. Return the exit code 0.

        Raises:
            LeaseError: another aggregator has taken over, or the table was changed meanwhile.
            TallystreamError: a person must decide; the message has the remedy.
        """
        while not self._stop.is_set():
            generation = self._take()
            if generation is None:
                continue
            failure = self._run(generation)
            if failure is None:
                return 0
            if self._watch.batch is not None:
                self._back_off_s, self._failures, self._set_aside = MIN_BACK_OFF_S, 0, False
            self._recover(failure)
        return 0

    def _take(self) -> int | None:
        """Take a generation as soon as the lease is held. Return None if it failed, and the next call may succeed.

        Raises:
            LeaseError: another aggregator has taken over.
        """
        if self._has_lease():
            try:
                generation = self._generations.take(self._opened())
            except (FencedError, BrokerError) as error:
                log.warning("no generation was taken yet: %s", error)
            else:
                log.info("aggregating into %s, generation %d", self._settings.topics.agg, generation)
                return generation
        self._wait()
        return None

    def _has_lease(self) -> bool:
        """Keep the lease, and tell whether it is held.

        Raises:
            LeaseError: another aggregator has taken over.
        """
        self._lease.check()
        if not self._lease.held and self._generations.now:  # else nothing tells a successor from those before
            try:
                self._generations.require_newest()
            except BrokerError as error:
                log.info("the ledger can't be read now: %s", error)
        return self._lease.held

    def _opened(self) -> LedgerRow:
        table = self._table_start
        return LedgerRow(
            start=table.offsets,
            shards=table.shards,
            forget_after_ms=self._settings.table.forget_after_ms,
            max_table_bytes=self._settings.table.max_table_bytes,
            otlp=list(self._settings.table.otlp_topics),
        )

    def _run(self, generation: int) -> Failure | None:
        """Run the query until it ends, and return why it failed, None if it was stopped.

        Raises:
            Py4JError: Spark's JVM has ended. The end of the session says why.
        """
        settings = self._settings
        stop_file = stop_path(settings.checkpoint, generation)
        # That of a driver before, as generations begin at 1 again when topics were deleted: it would stop every loop.
        stop_file.unlink(missing_ok=True)
        query: StreamingQuery | None = None
        self._watch.reset(generation)
        try:
            self._watch.follow()  # what earlier processes have counted
            processor = EpochProcessor(EpochTask(self._epoch_settings(generation, stop_file), self._access))
            query = start_query(self._session, processor, self._table_start.loops, settings.checkpoint)
            self._follow(query)
        except (Py4JJavaError, PySparkException) as error:
            return failure_of(error, settings.checkpoint)
        finally:
            if query is not None:
                finish(query, stop_file, self._watch)
            stop_file.unlink(missing_ok=True)
        self._watch.look(query)
        self._watch.follow(last=True)
        self._record_epoch()
        failure = query.exception()
        return None if failure is None else failure_of(failure, settings.checkpoint)

    def _follow(self, query: StreamingQuery) -> None:
        """Follow the query until it ends or has to end."""
        ready, epoch_s, looks_s = self._settings.ready_file, self._settings.epoch_s, 0.0
        while query.isActive and not self._stop.wait(POLL_S):
            self._lease.check()
            if time.monotonic() >= looks_s:
                self._watch.look(query)
                self._record_epoch()
                looks_s = time.monotonic() + (LOOK_S if self._watch.batch is None else max(LOOK_S, epoch_s / 12))
            self._watch.follow()
            if ready is not None and self._watch.is_ready:
                ready.touch()
                ready = None
            if self._watch.is_done:
                self._stop.set()

    def _record_epoch(self) -> None:
        """Append the positions of an epoch to the ledger, if they moved. The next epoch's row makes up for a lost one.

        Raises:
            LeaseError: another driver has taken a generation.
        """
        end = self._watch.positions
        if end == self._recorded:
            return
        try:
            self._generations.change(msgspec.structs.replace(self._opened(), start={}, end=end))
        except BrokerError as error:
            log.warning("the ledger is not written now: %s", error)
        else:
            self._recorded = end

    def _epoch_settings(self, generation: int, stop_file: Path) -> EpochSettings:
        settings, table = self._settings, self._table_start
        first = LoopSettings(
            LoopId(settings.topics, 0, table.shards),
            table.sum_tags,
            by_place(table.offsets),
            settings.table,
            settings.spacing_s,
            max_rate=settings.max_rate,
            skip_lost=settings.skip_lost,
        )
        return EpochSettings(first, generation, str(stop_file.absolute()), settings.epoch_s)

    def _recover(self, failure: Failure) -> None:
        """Prepare the next start of the query after a failure.

        Raises:
            TallystreamError: a person must decide.
        """
        self._watch.reset(self._generations.now)
        self._failures += failure.remedy is Remedy.RETRY
        is_checkpoint = self._failures >= MAX_FAILURES
        if failure.remedy is Remedy.STOP or (is_checkpoint and self._set_aside):
            raise TallystreamError(f"query aggregate: {failure.reason}")
        if is_checkpoint and self._has_lease():  # else it may be the checkpoint of another aggregator
            aside = set_aside(self._settings.checkpoint)
            self._failures, self._set_aside = 0, True
            log.warning(
                "Spark can't use the checkpoint, which is now %s; the table is made again from %s: %s",
                aside,
                self._settings.topics.table,
                failure.reason,
            )
            return
        log.warning("the query is started again: %s", failure.reason)
        self._wait()

    def _wait(self) -> None:
        """Wait, twice as long each time, and keep the lease."""
        until_s = time.monotonic() + self._back_off_s
        self._back_off_s = min(2 * self._back_off_s, MAX_BACK_OFF_S)
        while time.monotonic() < until_s and not self._stop.wait(POLL_S):
            self._lease.check()


def finish(query: StreamingQuery, stop_file: Path, watch: QueryWatch) -> None:
    """Let the last epoch of a query end, so that what is published is stored, and stop the query.

    Loops that are not ready make their tables again, and have published nothing. They get the time of a step, and end
    with the session: it takes a cold Spark seconds to end their first epoch.
    """
    ready = watch.is_ready
    until_s = time.monotonic() + (FINISH_S if ready else STEP_S)
    with suppress(OSError):  # without the file, the epoch is interrupted
        files.make_file(stop_file)
    with suppress(Py4JError, PySparkException):  # its JVM has ended
        while query.isActive and not watch.stopped and time.monotonic() < until_s:
            time.sleep(0.05)
            watch.look(query)
        if ready:
            query.stop()


def stop_path(checkpoint: Path, generation: int) -> Path:
    """Return the path of the file that requests a stop of a generation's loops."""
    return checkpoint.with_name(f"{checkpoint.name}.stop-{generation}")


def set_aside(checkpoint: Path) -> Path:
    """Give a checkpoint another name, create an empty one, and return the new name of the first.

    Raises:
        OSError: the folder can't be renamed.
    """
    names = (checkpoint.with_name(f"{checkpoint.name}.damaged-{number}") for number in count(1))
    aside = next(path for path in names if not path.exists())
    checkpoint.rename(aside)
    files.make_folder(checkpoint)
    return aside
