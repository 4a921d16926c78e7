"""The simulated access to Kafka keeps the contract of `stream.broker`, also where it allows something unpleasant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.simulation.broker import SimulatedCluster
from support.simulation.choices import ListedChoices, RandomChoices
from support.simulation.client import SimulatedBroker
from support.simulation.scheduler import Scheduler
from tallystream_aggregator.stream.broker import Bounds, Chunk, FencedError, LostRecordsError, Output, Place
from tallystream_aggregator.stream.reading import committed_records

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.simulation.choices import Choices

IN, OUT = Place("metrics", 0), Place("metrics-agg", 0)


def run(cluster: SimulatedCluster, code: Callable[[SimulatedBroker], Any], choices: Choices | None = None) -> Any:
    """Run a process with this code to its end, and return its result."""
    with Scheduler(choices or ListedChoices([]), cluster, expected=(FencedError, LostRecordsError)) as scheduler:
        process = scheduler.spawn("one", lambda p: code(SimulatedBroker(p, cluster, {"metrics"}.__contains__)))
        assert scheduler.run(1_000, lambda: process.ended)
    return process.error or process.result


def new_cluster() -> SimulatedCluster:
    cluster = SimulatedCluster()
    cluster.create("metrics", 2)
    cluster.create("metrics-agg", 1)
    return cluster


def test_a_commit_is_seen_by_the_next_look_up_of_its_process_after_a_new_writer() -> None:
    """Opening a writer waits for the markers of the last commit."""
    cluster = new_cluster()

    def code(broker: SimulatedBroker) -> Any:
        broker.writer("x").commit([Output(OUT, b"k", b"1"), Output(IN, b"k", b"2")])
        broker.writer("x")
        return list(committed_records(broker, OUT)), broker.bounds([OUT, Place("no", 0)])

    for seed in range(20):
        cluster = new_cluster()
        records, bounds = run(cluster, code, RandomChoices(seed))
        assert [record[2:] for record in records] == [(b"k", b"1")]
        assert bounds == {OUT: Bounds(0, 2, 2)}


def test_a_commit_without_records_sends_nothing() -> None:
    """So it doesn't notice that the writer is fenced."""

    def code(broker: SimulatedBroker) -> None:
        first = broker.writer("x")
        broker.writer("x")
        first.commit([])
        first.commit([Output(OUT, b"k", b"1")])

    assert isinstance(run(new_cluster(), code), FencedError)


def test_a_source_reads_everything_in_parts_and_in_any_order_of_partitions() -> None:
    """The chunks of a partition follow each other. The position passes over markers."""

    def code(broker: SimulatedBroker) -> list[Chunk]:
        broker.writer("x").commit([Output(IN, b"k", b"1"), Output(Place("metrics", 1), b"k", b"2")])
        source = broker.source()
        source.assign({IN: 0, Place("metrics", 1): 0})
        chunks: list[Chunk] = []
        while sum(chunk.end for chunk in chunks if chunk.end > 3) < 8:
            chunks += source.read(2, 1.0)
        return chunks

    orders = set()
    for seed in range(20):
        cluster = new_cluster()
        for number in range(2):
            for value in (b"a", b"b"):
                cluster.append(Place("metrics", number), None, value)
        chunks = run(cluster, code, RandomChoices(seed))
        orders.add(tuple(chunk.place for chunk in chunks))
        for number, written in ((0, b"1"), (1, b"2")):
            rows = [row for chunk in chunks if chunk.place.partition == number for row in chunk.rows]
            assert [row[3] for row in rows] == [b"a", b"b", written]
    assert len(orders) > 3


def test_a_read_of_nothing_lets_its_time_limit_pass() -> None:
    """A position that is out of range is an error of the read."""
    cluster = new_cluster()
    before = cluster.now_ms

    def code(broker: SimulatedBroker) -> Any:
        source = broker.source()
        source.assign({IN: 0})
        assert source.read(10, 5.0) == []
        source.assign({IN: 1})
        return source.read(10, 5.0)

    error = run(cluster, code)
    assert isinstance(error, LostRecordsError)
    assert (error.place, error.position, error.bounds) == (IN, 1, Bounds(0, 0, 0))
    assert 5_000 <= cluster.now_ms - before < 6_000


@pytest.mark.parametrize("seen", [True, False])
def test_metadata_may_lack_what_was_created_a_moment_ago(*, seen: bool) -> None:
    """It is an action of the cluster that ends this."""
    cluster = SimulatedCluster()
    cluster.create("metrics", 1)
    cluster.create("metrics", 2, known=False)
    cluster.create("metrics-dead", 1, known=False)
    if seen:
        next(action for action in cluster.actions() if action.name == "metadata spread").run()

    def code(broker: SimulatedBroker) -> Any:
        return (
            broker.partitions(),
            set(broker.topic_ids(["metrics", "metrics-dead"])),
            len(broker.bounds(cluster.places())),
        )

    answers = []
    for seed in range(20):
        copy = set(cluster.unknown)
        answers.append(run(cluster, code, RandomChoices(seed)))
        cluster.unknown |= copy
    partitions = [sorted(answer[0]["metrics"]) for answer in answers]
    assert ([0] in partitions) is not seen
    assert [0, 1] in partitions
    assert any(answer[1] == {"metrics"} for answer in answers) is not seen
    assert any(answer[2] < 3 for answer in answers) is not seen


def test_a_writer_that_opens_may_be_fenced_by_one_that_opens_at_the_same_time() -> None:
    """In some orders of events both get a writer, and in some one is refused."""
    errors = set()
    for seed in range(100):
        cluster = new_cluster()
        with Scheduler(RandomChoices(seed), cluster, expected=(FencedError,)) as scheduler:

            def code(process: Any, cluster: SimulatedCluster = cluster) -> None:
                broker = SimulatedBroker(process, cluster, bool)
                broker.writer("x")

            epoch = cluster.open_writer("x")
            assert epoch is not None
            cluster.add_partitions("x", epoch, [OUT])
            both = [scheduler.spawn(name, code) for name in ("one", "two")]
            assert scheduler.run(100, lambda ps=both: all(p.ended for p in ps))  # type: ignore[misc]
            errors.add(sum(isinstance(process.error, FencedError) for process in both))
    assert errors == {0, 1}


def test_a_committed_source_stops_before_an_open_transaction_and_leaves_out_aborted_records() -> None:
    """Others see both. It goes on after the marker."""
    cluster = new_cluster()
    cluster.append(IN, None, b"before")
    for value in (b"aborted", b"committed"):
        epoch = cluster.open_writer("x")
        assert epoch is not None
        cluster.add_partitions("x", epoch, [IN])
        cluster.produce("x", epoch, IN, [(b"k", value)])
        cluster.append(IN, None, b"after " + value)
        if value == b"aborted":
            cluster.expire("x")
            cluster.write_markers()

    def code(broker: SimulatedBroker) -> Any:
        read = []
        for committed in (True, False, True):
            source = broker.source(committed=committed)
            source.assign({IN: 0})
            read.append([([row[3] for row in chunk.rows], chunk.end) for chunk in source.read(10, 1.0)])
            if not committed:
                cluster.end("x", epoch, "commit")
                cluster.write_markers()
        return read

    first, uncommitted, last = run(cluster, code)
    assert first == [([b"before", b"after aborted"], 4)]
    assert uncommitted == [([b"before", b"aborted", b"after aborted", b"committed", b"after committed"], 6)]
    assert last == [([b"before", b"after aborted", b"committed", b"after committed"], 7)]
