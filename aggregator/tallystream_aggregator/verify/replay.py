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
from tallystream_aggregator.verify.lives import Settings
from tallystream_aggregator.verify.rules import Rules, letters
from tallystream_aggregator.verify.shard import Noted
from tallystream_aggregator.verify.sums import Held, sum_of

if TYPE_CHECKING:
    from tallystream_aggregator.verify.decode import Identity


class Replay:
    """The table after the records so far.

    Each shard reads every partition, and has the instances whose key has its number. It may be ahead of others.
    `noted` is what the records did beside changing lives.
    """

    def __init__(self, settings: Settings | None = None) -> None:
        self._settings = settings or Settings()
        self._otlp_topics = self._settings.otlp_topics
        self.noted = Noted()
        self._shards = [Rules(self._settings, self.noted)]

    def apply(self, partition: str, timestamp_ms: int, key: bytes | None, value: bytes | None) -> list[str]:
        """Apply one record in all shards. Return the reasons of its dead letters, as `read`."""
        return [
            reason
            for number in range(len(self._shards))
            for reason in self.read(number, partition, timestamp_ms, key, value)
        ]

    def read(self, number: int, partition: str, timestamp_ms: int, key: bytes | None, value: bytes | None) -> list[str]:
        """Apply one record in a shard.

        Return the reasons of the dead letters that the shard makes: of the record, or of its refused metrics.
        """
        shard = self._shards[number]
        clock = shard.advance(partition, timestamp_ms)
        try:
            if partition.rpartition(":")[0] in self._otlp_topics:
                shard.forget(partition, clock)
                if _is_otlp(value):
                    return self._apply_otlp(number, partition, timestamp_ms, key, value or b"")
            elif key == decode.CLOCK_KEY:
                wall_ms = decode.read_clock(value)
                if wall_ms is not None:
                    shard.forget(partition, min(clock, wall_ms))
                elif number == 0:
                    return ["clock: the value is not that of a clock record"]
                return []
            if self._number_of(key or b"") != number:
                return []
            return shard.apply(partition, timestamp_ms, decode.instance_of(key), value)
        except RejectedError as refused:
            return [str(refused)]

    def held(self) -> dict[Identity, list[Held]]:
        """Return the rows of each sum: of all lives that have a metric of it. A sum that had some may have none."""
        sum_of_metric = self._settings.tags.sum_of
        found: dict[Identity, list[Held]] = {
            sum_of_metric(metric): [] for shard in self._shards for metric in shard.room.uses
        }
        for shard in self._shards:
            for life in shard.lives():
                living = shard.is_living(life)
                for metric in life.rows:
                    found[sum_of_metric(metric)].append((life, life.counted(metric), living))
        return found

    def sums(self) -> dict[Identity, dict[str, Any]]:
        """Return the fields of each sum. `retired` is the number of its lives that were forgotten."""
        return {identity: sum_of(identity[1], held) for identity, held in self.held().items()} | self.instances()

    def instances(self) -> dict[Identity, dict[str, Any]]:
        """Return how many instances of each app are living, ended and silent, and its living lives (rule 13)."""
        found: dict[Identity, dict[str, Any]] = {}
        for shard in self._shards:
            for of_instance in shard.instances.values():
                for app in {app for app, _ in of_instance}:
                    lives = {name or "": life for (of, name), life in of_instance.items() if of == app}
                    fields = found.setdefault((app, "instances", "tallystream.instances", ()), sum_of("instances", []))
                    living = sum(map(shard.is_living, lives.values()))
                    _, last = max(lives.items(), key=lambda item: (item[1].active_ms, item[0]))
                    state = "instances" if living else "ended" if last.final else "silent"
                    fields[state] = fields.get(state, 0) + 1
                    fields["lives"] += living
        return found

    def split(self, shards: int) -> None:
        """Divide the instances among so many shards from now on. All have read the same records."""
        before = self._shards
        if shards == len(before):
            return
        self._shards = [Rules(self._settings, self.noted, shards) for _ in range(shards)]
        for shard in self._shards:
            shard.clocks |= before[0].clocks
            shard.forget_after_ms, shard.room.max_bytes = before[0].forget_after_ms, before[0].room.max_bytes
        for shard, one in zip(self._shards, before, strict=False):
            shard.take_forgotten(one.forgotten)
            shard.room.uses.update(dict.fromkeys(one.room.uses, 0))
            for instance, lives in one.instances.items():
                self._shards[self._number_of(instance.encode())].take(instance, lives)

    @property
    def shards(self) -> int:
        """Their number."""
        return len(self._shards)

    def change(self, forget_after_ms: int, max_table_bytes: int, otlp_topics: tuple[str, ...]) -> None:
        """Forget lives after this time, let each shard have so much memory, and read OTLP topics, from now on."""
        self._otlp_topics = otlp_topics
        for shard in self._shards:
            shard.forget_after_ms, shard.room.max_bytes = forget_after_ms, max_table_bytes

    def _number_of(self, key: bytes) -> int:
        return crc32(key) % len(self._shards)

    def _apply_otlp(self, number: int, partition: str, timestamp_ms: int, key: bytes | None, value: bytes) -> list[str]:
        """Apply a record of an OTLP topic: the data of each resource are snapshots of its instance.

        The shard of its key refuses the whole record, and what has no instance.
        """
        first, shard = self._number_of(key or b""), self._shards[number]
        if len(value) > self._settings.max_record_bytes:
            if first != number:
                return []
            shard.event("limit", "", "", "", "record size")
            return ["the record is too large"]
        try:
            resources = otlp.read(value)
        except RejectedError as error:
            return [str(error)] if first == number else []
        metrics: list[str] = []
        others: list[str] = []
        for resource in resources:
            named = otlp.instance_of(resource)
            if (first if named is None else self._number_of(named.encode())) != number:
                continue
            try:
                instance, snapshots, points = otlp.snapshots(resource, timestamp_ms, self._settings.max_metrics)
            except RejectedError as error:
                others.append(str(error))
                continue
            metrics += points
            for snapshot in snapshots:
                try:
                    shard.note_partition(instance, partition)
                    of_metrics, of_parts = shard.apply_snapshot(instance, partition, timestamp_ms, snapshot)
                except RejectedError as error:
                    others.append(str(error))
                else:
                    metrics += of_metrics
                    others += of_parts
        return letters(metrics, others)


def _is_otlp(value: bytes | None) -> bool:
    if value is None:
        return False
    begin = b"".join(value[:64].split()) if value[:1] == b"{" else b""
    return not begin.startswith((b'{"forget":', b'{"v":1,"forget":'))
