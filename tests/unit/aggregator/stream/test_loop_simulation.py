"""The loop on a simulated Kafka, through kills, pauses, takeovers, lost answers and lost checkpoints."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.fuzz import examples
from support.simulation.checkpoints import Batch, BatchTakenError
from support.simulation.client import SimulatedBroker, SimulatedWriter
from support.simulation.judge import Judge, Violation
from support.simulation.scheduler import Faults, HarmlessChoices, RandomChoices
from support.simulation.system import FAULTS, Disasters, System
from tallystream.errors import ConfigError
from tallystream_aggregator.stream import epochs
from tallystream_aggregator.stream import restore as restore_module
from tallystream_aggregator.stream.broker import BrokerError, FencedError, Output
from tallystream_aggregator.stream.loop import LayoutError, ShardLoop
from tallystream_aggregator.stream.positions import LoopId, newest_row
from tallystream_aggregator.stream.reshard import NoTableError
from tallystream_aggregator.table import storage

EXPECTED = (BatchTakenError, NoTableError, ConfigError, LayoutError)


def run(seed: int, disasters: Disasters, steps: int = 2_000, **parts: Any) -> tuple[System, Judge]:
    """Run a system, judge what it publishes, and let it come to its end."""
    system = System(RandomChoices(seed), disasters, **parts)
    judge = Judge(system, every=5)
    with system.scheduler as scheduler, pytest.MonkeyPatch.context() as patch:
        if seed % 2:  # steps are taken while the state is stored
            patch.setattr(storage, "ENTRY_BYTES", 100)
            patch.setattr(storage, "COPY_FLOOR", 0)
        for _ in range(steps // 50):
            scheduler.run(50)
            judge.judge()
            require_only_taken_batches(system)
        if not system.end():
            raise Violation(f"it does not read everything: {system.errors}")
        judge.end()
    require_only_taken_batches(system)
    return system, judge


def require_only_taken_batches(system: System) -> None:
    """Require that an aggregator ended only because another one had committed its batch, or has changed the shards.

    A change of the shards may end because the table has not begun, or has more shards already.
    """
    for error in system.errors:
        if not isinstance(error, EXPECTED):
            raise Violation(f"an aggregator ended: {error}")


@examples(6, fixed=True)
@given(st.integers(0, 2**32), st.booleans())
def test_everything_that_is_published_is_a_function_of_the_positions(seed: int, removals: bool) -> None:
    """Sums, dead letters and events are the replay's at the positions of a step, and rows are an exact cut.

    No count falls, no position goes back, and at the end all records are read, whatever was killed, paused or lost.
    """
    run(seed, Disasters(removals=removals, lose_markers=1))


@examples(4, fixed=True)
@given(st.integers(0, 2**32), st.integers(2, 3))
def test_the_sums_of_shards_are_a_function_of_their_positions(seed: int, shards: int) -> None:
    """The combiner publishes the replay's sums when all shards are at the same positions; no count falls before.

    Each task of a shard and that of the combiner is killed, paused, replaced and delayed by itself.
    """
    run(seed, Disasters(removals=False, lose_markers=1), shards=shards, steps=4_000)


@examples(4, fixed=True)
@given(st.integers(0, 2**32))
def test_a_change_of_the_number_of_shards_is_all_or_nothing(seed: int) -> None:
    """A table is split into more shards while everything is killed, paused and replaced, and publishes what it must."""
    run(seed, Disasters(removals=False, reshard=2), steps=4_000)


def test_the_simulation_has_what_it_is_for() -> None:
    """Runs have takeovers, sums and cuts of rows that are compared, and checkpoints that somebody else continued."""
    runs = [run(seed, Disasters()) for seed in range(3)]
    assert all(judge.compared > 10 for _, judge in runs)
    assert all(system.generation > 5 for system, _ in runs)
    assert any(judge.cuts for _, judge in runs)
    assert any(isinstance(error, BatchTakenError) for system, _ in runs for error in system.errors)


# Each rule that is left out shows up.


class LooksUpFirst(ShardLoop):
    """Looks up what is published before it fences earlier writers."""

    def _open(self, store: Any, claim: Any) -> None:
        self._early = newest_row(self._broker, self._loop.rows, 0)
        super()._open(store, claim)

    def _published(self, claim: Any) -> Any:  # noqa: ARG002
        return self._early


class ReplaysAloud(ShardLoop):
    """Publishes what a replay gives."""

    def _table_at(self, store: Any, source: Any) -> Any:  # noqa: ARG002
        last, restorer = self._last, self._restorer
        stored = None if last is None else restorer._from_state(store, last)
        return stored or restorer.new_table({})


class StoresWithoutRows(ShardLoop):
    """Stores the state at the end of an epoch though rows wait."""

    def _end_epoch(self, store: Any) -> None:
        self._rows_wait = False
        super()._end_epoch(store)


class OwnTransactionalId(SimulatedBroker):
    """Fences nobody: each process has a transactional ID of its own."""

    def writer(self, transactional_id: str) -> SimulatedWriter:
        """Open a writer."""
        return super().writer(f"{transactional_id}-{self._process.name}")


class WriterThatGoesOn(SimulatedWriter):
    """Repeats a transaction after an error."""

    def commit(self, records: Iterable[Output]) -> None:
        """Commit, and once more after an error."""
        records = list(records)
        try:
            super().commit(records)
        except BrokerError:
            super().commit(records)


class GoesOn(SimulatedBroker):
    """Has writers that go on after an error."""

    def writer(self, transactional_id: str) -> SimulatedWriter:
        """Open a writer."""
        writer = super().writer(transactional_id)
        return WriterThatGoesOn(self._process, self._cluster, transactional_id, writer._epoch)


class WriterOfTwo(SimulatedWriter):
    """Writes the positions row in a transaction of its own."""

    def commit(self, records: Iterable[Output]) -> None:
        """Commit twice."""
        *others, last = records
        super().commit(others)
        super().commit([last])


class InTwo(SimulatedBroker):
    """Has writers that split a step."""

    def writer(self, transactional_id: str) -> SimulatedWriter:
        """Open a writer."""
        writer = super().writer(transactional_id)
        return WriterOfTwo(self._process, self._cluster, transactional_id, writer._epoch)


def found_by(*, lose_markers: int = 0, **parts: Any) -> str | None:
    """Return what the judge says of a system with these parts, for the first seed that shows something."""
    for seed in range(30):
        try:
            run(seed, Disasters(removals=False, lose_markers=lose_markers), faults=MANY, **parts)
        except Violation as error:
            return str(error)
    return None


MANY = FAULTS._replace(lose_answer=100, late=100)


@pytest.mark.parametrize(
    "parts",
    [
        {"loop": LooksUpFirst},
        {"loop": ReplaysAloud},
        {"loop": StoresWithoutRows},
        {"broker": OwnTransactionalId},
        {"broker": GoesOn},
        {"broker": InTwo},
    ],
    ids=lambda parts: next(iter(parts.values())).__name__,
)
def test_a_rule_that_is_left_out_is_seen(parts: dict[str, Any]) -> None:
    """Without the rule, a run ends with a violation."""
    assert found_by(**parts)


def test_silence_that_goes_on_to_the_end_of_what_was_read_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence ends exactly at the published positions: what comes after them was not published."""
    monkeypatch.setattr(restore_module, "_cut", lambda chunk, _: chunk)
    assert found_by()


@pytest.mark.parametrize("outcome", [None, "abort"])
def test_a_step_without_markers_that_is_left_open_or_always_aborted_is_seen(
    monkeypatch: pytest.MonkeyPatch, outcome: str | None
) -> None:
    """Nobody else ends it. If a reader has seen a part of it, the rest must follow."""

    def end_open(_broker: Any, loop: LoopId, writer: Any, _claim: Any) -> None:
        if outcome is not None:
            writer.abort(loop.own)

    monkeypatch.setattr(epochs, "end_open", end_open)
    assert found_by(lose_markers=100)


class BeginsAgain(ShardLoop):
    """Opens a writer again when it is fenced."""

    def run_epoch(self, store: Any, claim: Any, seconds: float) -> Any:
        """Run for ever."""
        while True:
            try:
                return super().run_epoch(store, claim, seconds)
            except FencedError:
                continue


@pytest.mark.parametrize("loop", [ShardLoop, BeginsAgain])
def test_tasks_that_open_again_when_they_are_fenced_stop_each_other_for_ever(
    loop: type[ShardLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two tasks that go on by turns, whatever is claimed, commit nothing. If a fenced one ends, the other goes on."""
    if loop is BeginsAgain:
        monkeypatch.setattr(epochs, "require_highest", lambda *_: None)
    system = System(HarmlessChoices(), faults=Faults(), loop=loop)
    scheduler, cluster = system.scheduler, system.cluster
    with scheduler:
        for attempt in range(2):
            one = system._loop_of(0)
            scheduler.spawn(f"task {attempt}", lambda p, a=attempt, o=one: o(p).run_epoch(Batch(0), (1, a), 10_000))
        for number in range(2_000):
            if number % 20 == 0:
                system._feed()
            turn = scheduler.processes[number % len(scheduler.processes)]
            if turn.is_ready():
                scheduler.advance(turn)
            cluster.write_markers()
    commits = sum(transaction.outcome == "commit" for transaction in cluster.transactions)
    assert commits == 0 if loop is BeginsAgain else commits > 50
