"""A small loop that follows the protocol of the real one, to test the simulation: each rule can be left out.

It adds up numbers by key, and writes a dead letter for what is no number. It shares no code with the real loop.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from support.simulation.checkpoints import BatchTakenError
from tallystream_aggregator.stream.broker import BrokerError, FencedError, Output, Place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.simulation.checkpoints import Checkpoint
    from support.simulation.client import SimulatedBroker
    from support.simulation.processes import Process
    from tallystream_aggregator.stream.broker import Chunk, Positions, RawRecord, Writer

INPUT, SUMS, LETTERS, TABLE = "metrics", "metrics-agg", "metrics-dead", Place("metrics-table", 0)
POSITIONS, ROW = b"positions", b"row "
STEPS, ROWS_EVERY = 12, 3
"""The steps of an epoch, and how many steps there are between two with rows."""


class Rules(NamedTuple):
    """The rules of the protocol. Tests of the simulation leave one out."""

    look_up_after_opening: bool = True
    """What is published is looked up after the writer was opened."""
    fenced_ends: bool = True
    """A fenced process ends; it does not open a writer again."""
    new_writer_after_error: bool = True
    """After an error a new writer is opened; the old one does not commit again."""
    silent: bool = True
    """Nothing is published before the published positions are reached."""
    exact: bool = True
    """Each partition stops at its published position until all are there."""
    state_below_published: bool = True
    """A state above the published positions does not count."""
    rows_with_positions: bool = True
    """Rows are in one transaction with their positions."""
    one_transaction: bool = True
    """All outputs of a step are in one transaction with the positions."""


def listed(positions: Positions) -> list[tuple[str, int, int]]:
    """Return positions as JSON has them."""
    return sorted((place.topic, place.partition, offset) for place, offset in positions.items())


def unlisted(positions: list[tuple[str, int, int]]) -> Positions:
    """Return positions from JSON."""
    return {Place(topic, partition): offset for topic, partition, offset in positions}


def number_of(value: bytes | None) -> int | None:
    """Return what a record adds, or None if it is a dead letter."""
    return int(value) if value is not None and value.isdigit() else None


class State:
    """What was counted up to the positions."""

    def __init__(self, positions: Positions, sums: dict[str, int]) -> None:
        self.positions, self.sums = positions, Counter(sums)

    def apply(self, chunk: Chunk) -> Iterator[Output]:
        """Apply a chunk and yield its dead letters."""
        self.positions[chunk.place] = chunk.end
        for offset, _, key, value in chunk.rows:
            number = number_of(value)
            if number is None:
                yield Output(Place(LETTERS, 0), None, f"{chunk.place}:{offset}".encode())
            else:
                self.sums[(key or b"").decode()] += number


class Tally:
    """The loop of one process: epoch after epoch, until it is fenced or another process has its batch."""

    def __init__(self, process: Process, broker: SimulatedBroker, checkpoint: Checkpoint, rules: Rules) -> None:
        self._process, self._broker, self._checkpoint, self._rules = process, broker, checkpoint, rules

    def run(self) -> None:
        """Run until another process takes over."""
        while True:
            try:
                self._run()
            except BatchTakenError:
                return
            except FencedError:
                if self._rules.fenced_ends:
                    return
            except BrokerError:
                self._process.sleep(0.1)

    def _run(self) -> None:
        if self._rules.look_up_after_opening:
            writer = self._broker.writer("tally")
            records, row = self._published()
        else:
            records, row = self._published()
            writer = self._broker.writer("tally")
        at = unlisted(row["at"]) if row else {}
        batch = self._process.call("load the state", self._checkpoint.begin, may_fail=False)
        state = self._restore(batch.head(), records, row, at)
        for place in at:
            state.positions.setdefault(place, 0)
        if self._rules.silent:
            self._be_silent(state, at)
        self._commit(writer, state, [], rows=True)
        source = self._broker.source()
        while True:
            for partition in self._broker.partitions()[INPUT]:
                state.positions.setdefault(Place(INPUT, partition), 0)
            source.assign(state.positions)
            for step in range(STEPS):
                chunks = source.read(5, 1.0)
                letters = [letter for chunk in chunks for letter in state.apply(chunk)]
                if chunks:
                    self._commit(writer, state, letters, rows=step % ROWS_EVERY == 0)
            batch.set_head(json.dumps([listed(state.positions), state.sums]).encode())
            self._process.call("commit the batch", lambda b=batch: self._checkpoint.commit(b), may_fail=False)  # type: ignore[misc]
            batch = self._process.call("load the state", self._checkpoint.begin, may_fail=False)

    def _published(self) -> tuple[list[RawRecord], dict[str, Any] | None]:
        bounds = self._broker.bounds([TABLE])[TABLE]
        if bounds.stable != bounds.end:
            raise BrokerError("a transaction is open")
        records = self._broker.committed(TABLE, bounds.first, bounds.end)
        rows = [value for _, _, key, value in records if key == POSITIONS and value is not None]
        return records, json.loads(rows[-1]) if rows else None

    def _restore(
        self, head: bytes | None, records: list[RawRecord], row: dict[str, Any] | None, at: Positions
    ) -> State:
        if head is not None:
            positions, sums = json.loads(head)
            state = State(unlisted(positions), sums)
            first = self._broker.bounds(list(state.positions))
            below = all(offset <= at.get(place, 0) for place, offset in state.positions.items())
            there = all(offset >= first[place].first for place, offset in state.positions.items())
            if there and (below or not self._rules.state_below_published):
                return state
        rows = {k[len(ROW) :].decode(): int(v) for _, _, k, v in records if k and v and k.startswith(ROW)}
        return State(unlisted(row["rows"]) if row else {}, rows)

    def _be_silent(self, state: State, at: Positions) -> None:
        source = self._broker.source()
        while behind := {p: offset for p, offset in state.positions.items() if offset < at.get(p, 0)}:
            source.assign(behind if self._rules.exact else state.positions)
            for chunk in source.read(5, 1.0):
                if self._rules.exact:
                    end = at[chunk.place]
                    rows = [record for record in chunk.rows if record[0] < end]
                    chunk = chunk._replace(rows=rows, end=min(chunk.end, end))  # noqa: PLW2901
                list(state.apply(chunk))  # its letters were published

    def _commit(self, writer: Writer, state: State, letters: list[Output], *, rows: bool) -> None:
        at = listed(state.positions)
        if rows:
            self._rows_at = at
        table = [Output(TABLE, ROW + key.encode(), b"%d" % number) for key, number in state.sums.items() if rows]
        value = json.dumps({"at": at, "rows": self._rows_at}).encode()
        sums = [Output(Place(SUMS, len(key) % 2), key.encode(), b"%d" % n) for key, n in state.sums.items()]
        position = [Output(TABLE, POSITIONS, value)]
        if table and not self._rules.rows_with_positions:
            self._write(writer, table)
            table = []
        if not self._rules.one_transaction:
            self._write(writer, [*sums, *letters])
            sums = letters = []
        self._write(writer, [*sums, *letters, *table, *position])

    def _write(self, writer: Writer, records: list[Output]) -> None:
        for _ in range(1 if self._rules.new_writer_after_error else 5):
            try:
                writer.commit(records)
            except BrokerError as raised:
                error = raised
            else:
                return
        raise error
