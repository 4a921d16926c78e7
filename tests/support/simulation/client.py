"""The access of one simulated process to the cluster: `Broker`, `Source` and `Writer` of the loop, in memory.

Each request is a scheduling point of the process. So others may act between any two requests, and each request may
fail, lose its answer, or be the last thing that the process did. A writer may be used after an error, which a client
must not do: tests show what happens then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

from support.simulation.broker import SimulatedCluster
from support.simulation.partition import Outcome
from support.simulation.processes import Process
from tallystream_aggregator.stream.broker import Bounds, BrokerError, Chunk, FencedError, OffsetAndEpoch, Output, Place


class SimulatedBroker:
    """`tallystream_aggregator.stream.broker.Broker` of one process. The table reads the topics in `inputs`."""

    def __init__(self, process: Process, cluster: SimulatedCluster, inputs: Callable[[str], bool]) -> None:
        self._process, self._cluster, self._inputs = process, cluster, inputs

    def writer(self, transactional_id: str) -> SimulatedWriter:
        """Fence all earlier writers with this ID, end their transaction, and return a new one."""
        cluster = self._cluster
        epoch, asked = None, list[int | None]()
        while epoch is None:
            epoch = self._process.call(
                f"open {transactional_id}",
                lambda: self._open(transactional_id, asked),
                ready=lambda: not cluster.is_ending(transactional_id),
                may_be_late=True,
            )
        return SimulatedWriter(self._process, cluster, transactional_id, epoch)

    def _open(self, transactional_id: str, asked: list[int | None]) -> int | None:
        """Ask for an epoch. `asked` has the newest epoch after each time that this was asked."""
        epochs = self._cluster.epochs
        if asked and epochs.get(transactional_id) != asked[-1] and self._process.choose(2, "fenced while it opens"):
            raise FencedError(f"{transactional_id}: another writer was opened at the same time")
        epoch = self._cluster.open_writer(transactional_id)
        asked.append(epochs.get(transactional_id))
        return epoch

    def source(self, *, committed: bool = False) -> SimulatedSource:
        return SimulatedSource(self._process, self._cluster, committed=committed)

    def partitions(self) -> dict[str, Collection[int]]:
        """Return the partitions that exist now of the topics that the table reads."""
        topics = self._cluster.topics
        return self._process.call(
            "partitions", lambda: {name: range(len(topics[name].partitions)) for name in filter(self._inputs, topics)}
        )

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """Return the IDs of those of these topics that exist."""
        found = self._cluster.topics
        return self._process.call("topic IDs", lambda: {t: found[t].topic_id for t in topics if t in found})

    def bounds(self, places: Collection[Place]) -> dict[Place, Bounds]:
        """Return the bounds of those of these partitions that exist."""
        return self._process.call("bounds", lambda: self._cluster.bounds(places))


class SimulatedSource:
    """`Source` of one process. Which partitions a call reads, and how far, is chosen by the scheduler."""

    def __init__(self, process: Process, cluster: SimulatedCluster, *, committed: bool) -> None:
        self._process, self._cluster, self._committed = process, cluster, committed
        self._positions: dict[Place, int] = {}

    def assign(self, positions: Mapping[Place, int]) -> None:
        """Read exactly these partitions from these positions on."""
        self._positions = dict(positions)

    def read(self, max_records: int, timeout_s: float) -> list[Chunk]:
        """Return what is there, in part. If nothing is there, let the time pass."""
        return self._process.call("read", lambda: self._read(max_records, timeout_s))

    def _read(self, max_records: int, timeout_s: float) -> list[Chunk]:
        choose, positions = self._process.choose, self._positions
        places, left = list(positions), max_records
        part = choose(3, "part of what is there") if places else 0
        if part:
            places = [places[choose(len(places), "partition to read")]]
        if part == 2:
            left = min(left, 1 + choose(3, "records to read"))
        chunks = []
        for place in places:
            records, end = self._cluster.fetch(place, positions[place], left, committed=self._committed)
            left -= len(records)
            if end > positions[place]:
                positions[place] = end
                ends = {entry.epoch: OffsetAndEpoch(entry.offset, entry.epoch) for entry in records}
                chunks.append(Chunk(place, [entry[:4] for entry in records], end, list(ends.values())))
        if not chunks:
            self._process.pass_time(timeout_s)
        return chunks

    def close(self) -> None:
        """Do nothing."""


class SimulatedWriter:
    """`Writer` of one process. A commit is several requests."""

    def __init__(self, process: Process, cluster: SimulatedCluster, transactional_id: str, epoch: int) -> None:
        self._process, self._cluster = process, cluster
        self._id, self._epoch = transactional_id, epoch
        self._failed = False

    def commit(self, records: Iterable[Output]) -> None:
        """Write these records in one transaction. Without records, Kafka's clients send nothing."""
        self._write(records, "commit")

    def abort(self, places: Collection[Place]) -> None:
        """Abort a transaction in these partitions, and what earlier writers have left open there."""
        self._write([Output(place, b"aborted", None) for place in places], "abort")

    def _write(self, records: Iterable[Output], outcome: Outcome) -> None:
        batches: dict[Place, list[tuple[bytes | None, bytes | None]]] = {}
        for place, key, value in records:
            batches.setdefault(place, []).append((key, value))
        if not batches:
            return
        if self._failed:
            self._call("abort", self._abort)
        self._failed = True
        ending = self._cluster.is_ending
        self._call(
            "begin",
            lambda: self._cluster.add_partitions(self._id, self._epoch, list(batches)),
            ready=lambda: not ending(self._id),
        )
        for place, batch in batches.items():
            cut = self._process.choose(len(batch), "records of a second request") if len(batch) > 1 else 0
            for part in (batch[:-cut], batch[-cut:]) if cut else (batch,):
                self._call(f"write {place}", partial(self._produce, place, part))
        self._call(outcome, lambda: self._cluster.end(self._id, self._epoch, outcome))
        self._failed = False

    def _call(self, what: str, effect: Callable[[], None], *, ready: Callable[[], bool] | None = None) -> None:
        self._process.call(f"{what} {self._id}", effect, ready=ready, may_be_late=True)

    def _produce(self, place: Place, records: list[tuple[bytes | None, bytes | None]]) -> None:
        self._cluster.produce(self._id, self._epoch, place, records)

    def _abort(self) -> None:
        try:
            self._cluster.end(self._id, self._epoch, "abort")
        except BrokerError:
            return  # nothing is open, or the commit was decided after all

    def close(self) -> None:
        """Do nothing. An open transaction stays."""
