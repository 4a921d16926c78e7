"""The replay: it applies records in offset order, and computes sums.

No rule depends on two instances. An instance is in one partition, or moves to another one. Then the highest seq wins,
whichever partition is read first. So the partitions may be interleaved in any way if each is read in offset order.

A life is forgotten at a clock record of its partition, or in an OTLP topic at any record of it. Its counts stay in the
sums as those of its shard's forgotten lives, and only a forget record of a metric removes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from zlib import crc32

from tallystream_aggregator.verify import decode, otlp
from tallystream_aggregator.verify.decode import RejectedError
from tallystream_aggregator.verify.lives import Held, Life, Settings, merged, sum_of
from tallystream_aggregator.verify.rules import Rules, letters

if TYPE_CHECKING:
    from tallystream_aggregator.verify.decode import Identity


class Replay(Rules):
    """The table after the records so far.

    Each shard reads every partition, and has the instances whose key has its number. It may be ahead of others. So it
    has its own clock for each partition, as in "metrics:0": the highest append time of the records that it has read.
    """

    def __init__(self, settings: Settings | None = None) -> None:
        super().__init__(settings or Settings())
        self._clocks: dict[tuple[int, str], int] = {}  # by shard and partition, epoch ms
        self._forgetting_ms: dict[tuple[int, str], int] = {}  # the clocks before which no life is forgotten
        self._forget_after_ms = self._settings.forget_after_ms

    def apply(self, partition: str, timestamp_ms: int, key: bytes | None, value: bytes | None) -> list[str]:
        """Apply one record in all shards. Return the reasons of its dead letters, as `read`."""
        return [
            reason for shard in range(self.shards) for reason in self.read(shard, partition, timestamp_ms, key, value)
        ]

    def read(self, shard: int, partition: str, timestamp_ms: int, key: bytes | None, value: bytes | None) -> list[str]:
        """Apply one record in a shard.

        Return the reasons of the dead letters that the shard makes: of the record, or of its refused metrics.
        """
        self._clock = self._clocks[shard, partition] = max(timestamp_ms, self._clocks.get((shard, partition), 0))
        try:
            if partition.rpartition(":")[0] in self._settings.otlp_topics:
                self._forget(shard, partition, self._clock)
                if self._is_otlp(value):
                    return self._apply_otlp(shard, partition, timestamp_ms, key, value or b"")
            elif key == decode.CLOCK_KEY:
                wall_ms = decode.read_clock(value)
                if wall_ms is not None:
                    self._forget(shard, partition, min(self._clock, wall_ms))
                elif shard == 0:
                    return ["clock: the value is not that of a clock record"]
                return []
            if self._shard(key or b"") != shard:
                return []
            return self._apply(partition, timestamp_ms, decode.instance_of(key), value)
        except RejectedError as refused:
            return [str(refused)]

    def _forget(self, shard: int, partition: str, end_ms: int) -> None:
        """Forget the lives of a shard and a partition that are due at this time."""
        at, after_ms = (shard, partition), self._forget_after_ms
        if end_ms < self._forgetting_ms.get(at, 0):
            return
        left_ms = end_ms + after_ms
        for instance, lives in list(self._instances.items()):
            for name, life in list(lives.items()):
                if life.partition != partition or life.is_short or self._shard(life.instance.encode()) != shard:
                    continue
                if end_ms - life.keep_ms >= after_ms:
                    self._forget_life(shard, life)
                    self._drop(lives.pop(name))
                    if not lives:
                        del self._instances[instance]
                else:
                    left_ms = min(left_ms, life.keep_ms + after_ms)
        self._forgetting_ms[at] = left_ms

    def _forget_life(self, shard: int, life: Life) -> None:
        """Add the rows of a life to those of the forgotten lives of its shard."""
        forgotten = self._forgotten.setdefault(shard, Life("", "", "", 0, 0, 0, forgotten=True))
        for identity in list(life.rows):
            rows = [one.counted(identity) for one in (forgotten, life) if identity in one.rows]
            left = merged(identity[1], rows)
            if left is not None:
                self._uses[identity] += identity not in forgotten.rows
                forgotten.rows[identity] = left
            self._remove(life, identity)

    def _shard(self, key: bytes) -> int:
        return crc32(key) % self.shards

    def _is_otlp(self, value: bytes | None) -> bool:
        if value is None:
            return False
        begin = b"".join(value[:64].split()) if value[:1] == b"{" else b""
        return not begin.startswith((b'{"forget":', b'{"v":1,"forget":'))

    def _apply_otlp(self, shard: int, partition: str, timestamp_ms: int, key: bytes | None, value: bytes) -> list[str]:
        """Apply a record of an OTLP topic: the data of each resource are snapshots of its instance.

        The shard of its key refuses the whole record, and what has no instance.
        """
        first = self._shard(key or b"")
        if len(value) > self._settings.max_record_bytes:
            if first != shard:
                return []
            self._event("limit", "", "", "", "record size")
            return ["the record is too large"]
        try:
            resources = otlp.read(value)
        except RejectedError as error:
            return [str(error)] if first == shard else []
        metrics: list[str] = []
        others: list[str] = []
        for resource in resources:
            named = otlp.instance_of(resource)
            if (first if named is None else self._shard(named.encode())) != shard:
                continue
            try:
                instance, snapshots, points = otlp.snapshots(resource, timestamp_ms, self._settings.max_metrics)
            except RejectedError as error:
                others.append(str(error))
                continue
            metrics += map(str, points)
            for snapshot in snapshots:
                try:
                    self._note_partition(instance, partition)
                    of_metrics, of_parts = self._snapshot(instance, partition, timestamp_ms, snapshot)
                except RejectedError as error:
                    others.append(str(error))
                else:
                    metrics += of_metrics
                    others += of_parts
        return letters(metrics, others)

    def held(self) -> dict[Identity, list[Held]]:
        """Return the rows of each sum: of all lives that have a metric of it. A sum that had some may have none."""
        sum_of_metric = self._settings.tags.sum_of
        found: dict[Identity, list[Held]] = {sum_of_metric(metric): [] for metric in self._uses}
        for life in self._lives():
            living = self._living(life)
            for metric in life.rows:
                found[sum_of_metric(metric)].append((life, life.counted(metric), living))
        return found

    def sums(self) -> dict[Identity, dict[str, Any]]:
        """Return the fields of each sum. `retired` is the number of its lives that were forgotten."""
        return {identity: sum_of(identity[1], held) for identity, held in self.held().items()}

    def split(self, shards: int) -> None:
        """Divide the instances among so many shards from now on. All have read the same records."""
        highest: dict[str, int] = {}
        for (_, partition), clock in self._clocks.items():
            highest[partition] = max(clock, highest.get(partition, 0))
        self._clocks = {(shard, at): clock for shard in range(shards) for at, clock in highest.items()}
        self.shards, self._forgetting_ms = shards, {}

    def forget_after(self, ms: int) -> None:
        """Forget lives after this time from now on."""
        self._forget_after_ms, self._forgetting_ms = ms, {}

    def _living(self, life: Life) -> bool:
        if life.final or life.forgotten:
            return False
        return self._clocks[self._shard(life.instance.encode()), life.partition] < life.deadline_ms
