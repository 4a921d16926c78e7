"""The access to Kafka on a real broker: transactions, fencing, markers, lost records, an outage, offsets of a group."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from secrets import token_hex
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from support.kafka import committed
from support.wait import wait_until
from tallystream_aggregator.jobs.aggregate.query_watch import commit_offsets
from tallystream_aggregator.kafka import clients
from tallystream_aggregator.kafka.topic_selection import Selection
from tallystream_aggregator.stream.broker import (
    Bounds,
    BrokerError,
    FencedError,
    LostRecordsError,
    Output,
    Place,
    Positions,
    Source,
    bounds_of,
)
from tallystream_aggregator.stream.kafka.broker import KafkaBroker
from tallystream_aggregator.stream.kafka.calls import Timeouts
from tallystream_aggregator.stream.reading import read_range
from tallystream_cli.servers import broker as servers

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

POLICY = {"max.message.bytes": "10000", "message.timestamp.type": "LogAppendTime"}
LIMIT_S = 60
"""The longest wait of a test for something that takes far less on an idle machine."""


class Topic:
    """A test's topic, with two partitions, and another one beside it; `broker` is what is tested."""

    def __init__(self, server: servers.KafkaBroker, admin: AdminClient, name: str) -> None:
        self.servers, self.admin, self.name = server.bootstrap_servers, admin, name
        self.place, self.second = Place(name, 0), Place(name, 1)
        self.other = Place(name + "-other", 0)
        self.create(self.other.topic, 1)
        self.create(name, 2)
        self.broker = self.new_broker()

    def new_broker(self, **timeouts: Any) -> KafkaBroker:
        """Return an access with these time limits."""
        options = {"bootstrap.servers": self.servers}
        limits = Timeouts(**{"init_s": LIMIT_S, "commit_s": LIMIT_S, "query_s": LIMIT_S, **timeouts})
        return KafkaBroker(options, Selection(self.name), "tests", limits)

    def create(self, name: str, partitions: int) -> None:
        """Create a topic that refuses records of more than 10,000 bytes, and wait until all of it has a leader."""
        self.admin.create_topics([NewTopic(name, partitions, 1, config=POLICY)])[name].result()
        places = [Place(name, partition) for partition in range(partitions)]
        broker = KafkaBroker({"bootstrap.servers": self.servers}, Selection(name), "tests")
        wait_until(lambda: len(broker.bounds(places)) == partitions, LIMIT_S, f"{name} has leaders")

    def records(self, *values: str, place: Place | None = None) -> list[Output]:
        """Return records of the first partition, or of `place`."""
        return [Output(place or self.place, b"k", value.encode()) for value in values]

    def open_transaction(self, *values: str, id_: str | None = None) -> Producer:
        """Return a producer whose transaction, with these records in the first partition, is open."""
        producer = Producer(
            {"bootstrap.servers": self.servers, "transactional.id": id_ or self.name, "linger.ms": 0, "log_level": 0}
        )
        producer.init_transactions(LIMIT_S)
        producer.begin_transaction()
        for value in values:
            producer.produce(self.name, value.encode(), b"k", 0)
        assert producer.flush(LIMIT_S) == 0
        return producer

    def visible(self, place: Place | None = None) -> list[str]:
        """Return the values that a reader of committed records sees, in the first partition or in `place`."""
        place = place or self.place
        return [
            value.decode()
            for *_, value in read_range(self.broker, place, bounds_of(self.broker, place))
            if value is not None
        ]

    def wait_visible(self, values: list[str], *places: Place) -> None:
        """Wait until a reader of committed records sees these values in each place: a commit's markers come later."""
        for place in places:
            wait_until(lambda: self.visible(place) == values, LIMIT_S, f"{place} shows {values}")  # noqa: B023

    def wait_bounds(self, *bounds: int) -> None:
        """Wait until the first partition has these bounds."""
        wait_until(lambda: self.broker.bounds([self.place])[self.place] == bounds, LIMIT_S, f"it has {bounds}")


@pytest.fixture
def topic(broker: servers.KafkaBroker, admin: AdminClient, topic_prefix: str) -> Topic:
    return Topic(broker, admin, topic_prefix + "in")


def read_to(source: Source, ends: Positions) -> dict[Place, list[str]]:
    """Return the values that are read until each partition's position is at `ends`."""
    values: dict[Place, list[str]] = {place: [] for place in ends}
    reached: Positions = dict.fromkeys(ends, 0)

    def read() -> bool:
        for place, rows, end, _ in source.read(1000, 0.1):
            assert end > reached[place]
            values[place] += [value.decode() for _, _, _, value in rows if value is not None]
            reached[place] = end
        return reached == ends

    wait_until(read, LIMIT_S, "the ends are reached", poll=0)
    return values


def test_the_position_moves_over_markers_and_shows_records_of_open_transactions(topic: Topic) -> None:
    """Each partition is read to its end, though a marker or a record that was aborted is its last offset."""
    with closing(topic.broker.writer("one")) as writer:
        writer.commit([*topic.records("a", "b"), *topic.records("c", place=topic.second)])
    producer = topic.open_transaction("aborted")
    producer.abort_transaction(LIMIT_S)
    with closing(topic.broker.source()) as source:
        source.assign({topic.place: 0, topic.second: 0})
        assert read_to(source, {topic.place: 5, topic.second: 2}) == {
            topic.place: ["a", "b", "aborted"],
            topic.second: ["c"],
        }
        producer.begin_transaction()
        producer.produce(topic.name, b"open", b"k", 0)
        assert read_to(source, {topic.place: 6}) == {topic.place: ["open"]}
        topic.wait_bounds(0, 5, 6)
        producer.commit_transaction(LIMIT_S)
        assert read_to(source, {topic.place: 7}) == {topic.place: []}


def test_assign_reads_from_the_new_positions_only(topic: Topic) -> None:
    """What was fetched for the positions before is dropped, and rows have offset, append time, key and value."""
    with closing(topic.broker.writer("one")) as writer:
        writer.commit(topic.records(*map(str, range(100))))
        writer.commit([Output(topic.other, None, b"other"), Output(topic.second, b"deleted", None)])
    with closing(topic.broker.source()) as source:
        source.assign({topic.place: 0})
        (chunk,) = source.read(10, LIMIT_S)
        assert [row[0] for row in chunk.rows] == list(range(chunk.end))
        assert 0 < chunk.end <= 10
        source.assign({topic.place: 98, topic.other: 0, topic.second: 0})
        ends = {topic.place: 101, topic.other: 2, topic.second: 2}
        assert read_to(source, ends) == {topic.place: ["98", "99"], topic.other: ["other"], topic.second: []}
        source.assign({topic.second: 0})
        (chunk,) = source.read(10, LIMIT_S)
        ((offset, append_ms, key, value),) = chunk.rows
        assert (offset, key, value) == (0, b"deleted", None)
        assert abs(append_ms - time.time() * 1000) < 3_600_000


def test_a_fenced_writer_raises_and_nothing_of_its_transaction_is_visible(topic: Topic) -> None:
    """The transaction that was open is aborted by the next writer, which the fenced one can't stop."""
    first = topic.open_transaction("of the first")
    writer = topic.broker.writer(topic.name)
    first.produce(topic.name, b"late", b"k", 0)
    with pytest.raises(Exception, match="fenced"):
        first.commit_transaction(LIMIT_S)
    second = topic.broker.writer(topic.name)
    with pytest.raises(FencedError, match=f"broker {topic.servers}: the transaction failed: .*fenced"):
        writer.commit(topic.records("of the fenced"))
    with pytest.raises(BrokerError, match="a transaction of it has failed"):
        writer.commit(topic.records("again"))
    second.commit(topic.records("of the second"))
    second.commit(topic.records("next"))
    topic.wait_visible(["of the second", "next"], topic.place)
    for one in (writer, second):
        one.close()


def test_an_aborted_transaction_is_not_visible_and_the_writer_can_be_used_again(topic: Topic) -> None:
    """It holds back nobody."""
    with closing(topic.broker.writer("one")) as writer:
        writer.abort([topic.place, topic.other])
        writer.commit([*topic.records("after"), *topic.records("after", place=topic.other)])
    topic.wait_visible(["after"], topic.place, topic.other)


def test_a_record_that_the_broker_rejects_makes_the_whole_transaction_fail(topic: Topic) -> None:
    """The records before and after it are not visible either, also in other partitions; a new writer goes on."""
    writer = topic.broker.writer("one")
    records = [
        *topic.records("a", place=topic.second),
        *topic.records("b", token_hex(20_000), "c"),  # the broker compares the compressed size
        *topic.records("d", place=topic.other),
    ]
    with pytest.raises(BrokerError, match="Message size too large") as raised:
        writer.commit(records)
    assert type(raised.value) is BrokerError
    writer.close()
    with closing(topic.broker.writer("one")) as writer:
        assert [topic.visible(place) for place in (topic.place, topic.second, topic.other)] == [[], [], []]
        writer.commit(records[:2])
    topic.wait_visible(["b"], topic.place)
    topic.wait_visible(["a"], topic.second)


def test_a_position_out_of_range_is_an_error_with_the_bounds(topic: Topic) -> None:
    """Records that were deleted, and a position above the end: the error names what is there."""
    with closing(topic.broker.writer("one")) as writer:
        writer.commit(topic.records("a", "b", "c"))
    topic.wait_bounds(0, 4, 4)
    topic.admin.delete_records([TopicPartition(topic.name, 0, 2)])[TopicPartition(topic.name, 0, 2)].result()
    with closing(topic.broker.source()) as source:
        for position, problem in ((1, "it has offsets 2 to 4, and 1 is"), (9, "it lost the offsets 4 to 8, as by")):
            source.assign({topic.place: position, topic.second: 0})
            with pytest.raises(LostRecordsError, match=f"partition 0: {problem}") as raised:
                wait_until(lambda: source.read(10, 0.1), LIMIT_S, "the error is raised")
            assert (raised.value.place, raised.value.bounds) == (topic.place, Bounds(2, 4, 4))
        source.assign({topic.place: 2})
        assert read_to(source, {topic.place: 4}) == {topic.place: ["c"]}


def test_a_topic_that_is_created_again_has_another_id(topic: Topic) -> None:
    """A topic that does not exist has none, and no bounds; its partitions are gone from the input."""
    assert topic.broker.partitions() == {topic.name: [0, 1]}
    before = topic.broker.topic_ids([topic.name, topic.other.topic])
    assert before.keys() == {topic.name, topic.other.topic}
    topic.admin.delete_topics([topic.name])[topic.name].result()
    wait_until(lambda: topic.broker.partitions() == {}, LIMIT_S, "the topic is gone")
    assert topic.broker.topic_ids([topic.name]) == {}
    assert topic.broker.bounds([topic.place]) == {}
    with pytest.raises(BrokerError, match="it has no partition 0 now"):
        list(read_range(topic.broker, topic.place, bounds_of(topic.broker, topic.place)))
    topic.create(topic.name, 2)
    assert topic.broker.topic_ids([topic.name])[topic.name] != before[topic.name]


def test_asking_for_ids_leaves_nothing_behind(topic: Topic) -> None:
    """Loops, shipper and lag collector ask about each topic every few seconds, for months: no answer is kept."""
    topic.broker.topic_ids([topic.name, topic.other.topic])
    before = _ids_in_memory()
    for _ in range(20):
        topic.broker.topic_ids([topic.name, topic.other.topic])
    assert _ids_in_memory() == before


def _ids_in_memory() -> int:
    gc.collect()
    return sum(type(one).__name__ == "Uuid" for one in gc.get_objects())


def test_added_partitions_are_seen_and_read(topic: Topic) -> None:
    """A source reads them as soon as they are assigned."""
    with closing(topic.broker.source()) as source:
        source.assign({topic.place: 0, topic.second: 0})
        source.read(10, 0)
        topic.admin.create_partitions([NewPartitions(topic.name, 3)])[topic.name].result()
        wait_until(lambda: topic.broker.partitions() == {topic.name: [0, 1, 2]}, LIMIT_S, "it has three")
        added = Place(topic.name, 2)
        wait_until(lambda: added in topic.broker.bounds([added, topic.place]), LIMIT_S, "the third has a leader")
        with closing(topic.broker.writer("one")) as writer:
            writer.commit(topic.records("a") + topic.records("b", place=added))
        source.assign({topic.place: 0, topic.second: 0, added: 0})
        assert read_to(source, {topic.place: 2, added: 2}) == {topic.place: ["a"], added: ["b"]}


def test_committed_returns_neither_aborted_nor_open_records(topic: Topic) -> None:
    """A range of which all was aborted, or of markers alone, has no records. It must be before an open transaction."""
    with closing(topic.broker.writer("one")) as writer:
        writer.commit(topic.records("a", "b"))
        aborted = topic.open_transaction("x", "y", id_="two")
        aborted.abort_transaction(LIMIT_S)
        writer.commit(topic.records("c"))
    still_open = topic.open_transaction("open", id_="three")
    topic.wait_bounds(0, 8, 9)  # a b marker, x y marker, c marker, open

    def values(first: int, end: int) -> list[tuple[int, bytes | None]]:
        records = read_range(topic.broker, topic.place, Bounds(first, end, end))
        return [(offset, value) for offset, _, _, value in records]

    assert values(0, 8) == [(0, b"a"), (1, b"b"), (6, b"c")]
    assert values(1, 6) == [(1, b"b")]
    assert values(2, 6) == values(7, 8) == values(8, 8) == []
    with pytest.raises(BrokerError, match=r"sends nothing from [78] to its end of 9"):
        values(7, 9)
    still_open.abort_transaction(LIMIT_S)


def test_a_commit_fails_within_its_limit_while_the_broker_is_away(topic: Topic, broker: servers.KafkaBroker) -> None:
    """Queries and new writers fail, too, a stop ends the wait, and after the restart all of them work again."""
    access = topic.new_broker(init_s=1.0, commit_s=1.5, query_s=1.0)
    writer = topic.broker.writer("one")
    writer.commit(topic.records("before"))
    writer.close()
    writer = access.writer("one")
    source = access.source()
    source.assign({topic.place: 0, topic.second: 0})
    assert read_to(source, {topic.place: 2}) == {topic.place: ["before"]}
    broker.stop()
    try:
        with pytest.raises(BrokerError, match="the transaction failed: "):
            writer.commit(topic.records("during"))
        writer.close()
        for query in (
            lambda: access.writer("one"),
            access.partitions,
            lambda: access.topic_ids([topic.name]),
            lambda: access.bounds([topic.place]),
            lambda: list(read_range(access, topic.place, Bounds(0, 1, 1))),
        ):
            with pytest.raises(BrokerError, match=f"broker {topic.servers}: "):
                query()
        stopping = topic.new_broker(stopped=lambda: True)
        for query in (lambda: stopping.writer("one"), stopping.partitions, lambda: stopping.bounds([topic.place])):
            with pytest.raises(BrokerError, match="a stop was requested"):
                query()
        assert source.read(10, 0.5) == []
    finally:
        broker.start()
    with closing(topic.broker.writer("one")) as writer:
        writer.commit(topic.records("after"))
    topic.wait_visible(["before", "after"], topic.place)
    end = topic.broker.bounds([topic.place])[topic.place].end
    wait_until(lambda: [chunk for chunk in source.read(10, 0.1) if chunk.end == end], LIMIT_S, "the source reads on")
    source.close()


@contextmanager
def growing(topic: Topic) -> Iterator[None]:
    """Append a record every 20 ms. A fetch of librdkafka waits longer, so it never reaches the end."""
    producer = Producer({"bootstrap.servers": topic.servers})
    stop = threading.Event()

    def write() -> None:
        while not stop.wait(0.02):
            producer.produce(topic.name, b"later", b"k", 0)
            producer.poll(0)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        producer.flush(10)


def test_a_topic_that_keeps_growing_is_read_to_its_end(topic: Topic) -> None:
    """All records that existed at the start of the read are returned, while more are appended."""
    with closing(topic.broker.writer("one")) as writer:
        writer.commit(topic.records(*map(str, range(50))))
    topic.wait_bounds(0, 51, 51)
    with growing(topic):
        assert topic.visible()[:50] == list(map(str, range(50)))


def test_the_group_has_the_positions_of_a_new_table(topic: Topic) -> None:
    """They may be lower than those of the table before. A group without members stores them."""
    for offset in (5, 0):
        with clients.metadata_consumer({"bootstrap.servers": topic.servers}, topic.name) as consumer:
            commit_offsets(consumer, {topic.place: offset})
        assert committed(topic.servers, topic.name, topic.name) == offset
