"""Leave records out of a batch without changing what the table makes of it; pure, before the table, in any process.

Of a run of records (tallystream.aggregator.table.series) only the first and the last matter, if the table takes the
first one whole: it replaces what was there, and each of the others replaces it in turn. What the table alone knows is
asked there: a record that stands for others says which one was kept before them, and the table refuses the batch if it
is not that one that it has (`Unfoldable`); then the records of that instance are taken one by one.

docs/table.md, "Compaction", has the argument rule by rule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream.aggregator.table.inputs import Good, Unreadable, read_key, read_value
from tallystream.aggregator.table.series import Place, Row, Run, SnapshotRun, is_whole, keep, since_ms
from tallystream.aggregator.table.shapes import SPELLED, VALUE, Shape, Shapes
from tallystream.aggregator.table.shards import shard_of
from tallystream.reporter.record import identity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tallystream.aggregator.table.inputs import Record
    from tallystream.aggregator.table.settings import TableSettings
    from tallystream.reporter.record import Identity

MAX_RUNS = 500_000
"""Runs that are followed at a time: what bounds memory. Beyond, all end, and begin anew."""

_METRICS = b'"metrics"'
_ZERO, _BRACE = b"0}"


class Clock:
    """The highest append time so far of one shard's records, in epoch ms."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class _Instance:
    """The runs of one key. `shorts` are those of the short form by the text around the value, too."""

    __slots__ = ("clock", "counters", "readable", "shorts", "snapshots")

    def __init__(self, clock: Clock, *, readable: bool) -> None:
        self.clock = clock
        self.readable = readable
        self.forget()

    def forget(self) -> None:
        """Begin anew."""
        self.shorts: dict[Shape, Run] = {}
        self.counters: dict[Identity, Run] = {}
        self.snapshots: dict[tuple[str, str, int], SnapshotRun | None] = {}


class Compactor:
    """Compacts the records of one partition, which come in offset order, for a table in `shards`; used once."""

    def __init__(self, topic: str, partition: int, settings: TableSettings, shards: int = 1) -> None:
        self._place = Place(topic, partition)
        self._settings = settings
        # A quarter of the time after which lives retire: whatever is dropped within it is never late, unless the
        # table's clock is ahead of the records by as much again, which it looks at.
        self._margin_ms = settings.retire_after_ms // 4
        self._clocks = [Clock() for _ in range(shards)]
        self._runs = 0
        self._instances: dict[bytes | None, _Instance] = {}
        self._shapes = Shapes()

    def add(self, rows: Iterable[Row]) -> list[Record]:
        """Take records, and return those of which it is known by now that they are kept, in no order that matters."""
        kept: list[Record] = []
        instances, most = self._instances, self._settings.max_record_bytes
        for row in rows:
            _, at_ms, key, value = row
            instance = instances.get(key) or self._meet(key)
            clock = instance.clock.value
            if at_ms > clock:
                clock = instance.clock.value = at_ms
            if value is None or len(value) > most or not instance.readable:
                if value is None:  # a tombstone; what can't be read, or is too large, touches nothing
                    kept += self._end(instance)
                    instance.forget()
                kept.append(keep(self._place, row, clock))
                continue
            if _METRICS not in value:
                head, _, rest = value.rpartition(VALUE)
                digits = rest[:-1]
                plain = digits.isdigit() and rest[-1] == _BRACE and len(digits) < 19
                if plain and (digits[0] != _ZERO or digits == b"0"):
                    run = instance.shorts.get(head) or self._run_of(instance, head, b"", b"}")
                else:
                    run, digits = self._spelled(instance, head, rest)
                if run is not None:
                    number = int(digits)
                    if number < run.value:
                        kept += self._begin(run, row, clock, number)
                    else:
                        run.follow(row, clock, number)
                    continue
            kept += self._read(instance, row, value, clock)
        return kept if self._runs < MAX_RUNS else [*kept, *self.end()]

    def end(self) -> list[Record]:
        """Return what still waits: the records have ended, or are too many to follow."""
        kept = [record for instance in self._instances.values() for record in self._end(instance)]
        self._instances, self._runs = {}, 0
        return kept

    def _meet(self, key: bytes | None) -> _Instance:
        clock = self._clocks[shard_of(key, len(self._clocks))]
        instance = self._instances[key] = _Instance(clock, readable=not isinstance(read_key(key), Unreadable))
        self._runs += 1
        return instance

    def _end(self, instance: _Instance) -> list[Record]:
        runs = [*instance.counters.values(), *(run for run in instance.snapshots.values() if run is not None)]
        return [record for run in runs for record in run.end(self._place)]

    def _begin(self, run: Run, row: Row, clock: int, value: int) -> list[Record]:
        """Begin a run of a counter with a record, which is kept: the first one, or one that is lower."""
        kept = [*run.end(self._place), keep(self._place, row, clock)]
        run.value, run.after, run.first = value, value, row[0]
        return kept

    def _read(self, instance: _Instance, row: Row, value: bytes, clock: int) -> list[Record]:
        """Take a record that has to be read."""
        message = read_value(value, self._settings.max_metrics)
        if isinstance(message, Unreadable):
            return [keep(self._place, row, clock)]
        if isinstance(message, Good):
            return self._snapshot(instance, message, row, clock)
        run = self._counter(instance, identity(message.name, message.type, message.tags))
        if message.value < run.value:
            return self._begin(run, row, clock, message.value)
        run.follow(row, clock, message.value)
        return []

    def _snapshot(self, instance: _Instance, message: Good, row: Row, clock: int) -> list[Record]:
        snapshot = message.snapshot
        of = (snapshot.app, snapshot.life, snapshot.part)
        run = instance.snapshots.get(of)
        if run is None and of in instance.snapshots:
            return [keep(self._place, row, clock)]
        if run is not None and snapshot.seq <= run.value:
            return [*run.end(self._place), keep(self._place, row, clock)]
        whole = not message.rejected and not message.beyond and not snapshot.final
        whole = whole and clock - since_ms(snapshot) < self._margin_ms
        if run is not None and whole and run.goes_on(snapshot, clock, self._margin_ms):
            run.wait(row, clock, snapshot)
            return []
        kept = [] if run is None else run.end(self._place)
        kept.append(keep(self._place, row, clock))
        if run is not None and run.has_more_than(snapshot):
            # What it refuses it will go on refusing for a while: no run could begin with a record that is taken whole.
            instance.snapshots[of] = None
        elif whole and is_whole(snapshot):
            instance.snapshots[of] = SnapshotRun(snapshot, row, clock)
            self._runs += run is None
        else:
            instance.snapshots.pop(of, None)
        return kept

    def _spelled(self, instance: _Instance, head: bytes, rest: bytes) -> tuple[Run | None, bytes]:
        """Return the run, and the digits, of a record that has more about the value than the plain form."""
        spelled = SPELLED.fullmatch(rest)
        if spelled is None:
            return None, b""
        lead, digits, tail = spelled.groups()
        return instance.shorts.get((head, lead, tail)) or self._run_of(instance, head, lead, tail), digits

    def _run_of(self, instance: _Instance, head: bytes, lead: bytes, tail: bytes) -> Run | None:
        """Return the run of the counter that records with this text around the value are of, None for no counter."""
        shape = head if not lead and tail == b"}" else (head, lead, tail)
        metric = self._shapes.metric(shape, head + VALUE + lead, tail)
        if metric is None:
            return None
        run = instance.shorts[shape] = self._counter(instance, metric)
        self._runs += 1
        return run

    def _counter(self, instance: _Instance, metric: Identity) -> Run:
        run = instance.counters.get(metric)
        if run is None:
            run = instance.counters[metric] = Run()
            self._runs += 1
        return run
