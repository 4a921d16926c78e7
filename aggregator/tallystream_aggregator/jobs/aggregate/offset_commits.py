"""Commits the offsets of each finished batch to the consumer group, and writes its row to the ledger.

The logs of the checkpoint name the finished batches. So the same code serves a running query and a restart after a
crash.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from tallystream_aggregator.kafka.ledger import QUERY, LedgerRow, LedgerWriter
from tallystream_aggregator.spark.checkpoint import Finished, finished_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from tallystream_aggregator.kafka.groups import GroupCommitter
    from tallystream_aggregator.kafka.topic_selection import Offsets

log = logging.getLogger(__name__)


class OffsetCommits:
    """Follows a checkpoint. `last` is the last batch that the ledger already has, -1 for none.

    `checked` returns the field of that name in rows of the ledger, and `otlp` is the field of that name.

    Delivery: each finished batch is committed and written at least once, in order. If the broker does not answer, the
    next call tries again.
    """

    def __init__(
        self,
        checkpoint: Path,
        committer: GroupCommitter,
        ledger: LedgerWriter,
        *,
        epoch: int,
        last: int,
        checked: Callable[[], Offsets] = dict,
        otlp: Sequence[str] = (),
    ) -> None:
        self._checkpoint = checkpoint
        self._committer = committer
        self._ledger = ledger
        self._epoch = epoch
        self._last = last
        self._has_failed = False
        self._end: Offsets = {}
        self._checked = checked
        self._otlp = sorted(otlp)
        self._reported: Offsets = {}

    def reached(self, ends: Mapping[str, Mapping[str, int]]) -> bool:
        """Return whether the offsets up to `ends` are committed: topic → partition → the next offset to read."""
        return all(
            self._end.get(topic, {}).get(partition, 0) >= end
            for topic, partitions in ends.items()
            for partition, end in partitions.items()
        )

    def catch_up(self) -> None:
        """Commit and write every batch that has finished since the last call.

        Raises:
            CheckpointError: a log of the checkpoint is damaged.
        """
        batches = finished_batches(self._checkpoint, after=self._last)
        if not batches:
            return
        moved = [batch for batch in batches if batch.end != batch.start]
        try:
            if moved:
                self._committer.commit(moved[-1].end)
                rows = [self._row(batch) for batch in moved]
                checked = self._checked()
                if checked != self._reported:
                    rows[-1].checked = checked
                self._ledger.write(rows)
                self._reported = checked
        except KafkaException as error:
            if not self._has_failed:
                log.warning("offsets of batch %d: not committed yet (%s); trying again", batches[-1].batch, error)
            self._has_failed = True
            return
        self._has_failed = False
        self._last, self._end = batches[-1].batch, batches[-1].end

    def _row(self, batch: Finished) -> LedgerRow:
        return LedgerRow(
            kind="batch",
            query=QUERY,
            epoch=self._epoch,
            batch=batch.batch,
            ts=batch.ts_ms,
            start=batch.start or {},
            end=batch.end,
            otlp=self._otlp,
        )
