"""Markers that Kafka has lost: the next writer ends the transaction, as readers have seen it."""

from __future__ import annotations

import json
from collections.abc import Collection

import pytest

from support.simulation.checkpoints import Batch
from support.simulation.direct import METRICS, ROWS, Direct
from support.simulation.system import TOPICS
from tallystream.errors import TallystreamError
from tallystream_aggregator.stream.broker import FencedError, Place
from tallystream_aggregator.stream.epochs import EpochLoop
from tallystream_aggregator.stream.positions import PositionsRow, encode, key_of

AGG, DEAD, EVENTS = (Place(topic, 0) for topic in (TOPICS.agg, TOPICS.dead, TOPICS.events))
SHARD = Place(TOPICS.shards, 0)
WRITER = "tallystream-aggregator-0"


class Killed(Exception):  # noqa: N818 (it is no error of the loop)
    """The process ends."""


def kill_after_a_step(direct: Direct, loop: EpochLoop, sums: Place, lost: Collection[Place]) -> None:
    """Kill a loop after its next step with sums. The markers of the step are lost in these partitions."""

    def fail(request: str) -> None:
        if f"write {sums}" in request:
            direct.lost = lost
        elif direct.lost and not request.startswith(("write", "commit")):
            direct.fail, direct.lost = (lambda _: None), ()
            raise Killed

    direct.fail = fail
    with pytest.raises(Killed):
        loop.run_epoch(direct.store, (1, 1), 60)
    assert not direct.cluster.ending()


def require_visible(direct: Direct, *places: Place) -> None:
    """Require that no transaction is open in these partitions."""
    direct.flush()
    for place in places:
        first, stable, end = direct.cluster.partition(place).bounds
        assert first <= stable == end, place


@pytest.mark.parametrize("lost", [[ROWS, AGG, DEAD], [ROWS, AGG], [ROWS, DEAD], [ROWS], [AGG], [DEAD]], ids=str)
def test_a_step_without_its_markers_is_published_once(lost: list[Place]) -> None:
    """If nobody has seen a part of it, it is aborted and read again. Otherwise the rest becomes visible, too."""
    direct = Direct(partitions=2)
    direct.feed(1, place=Place("metrics", 1), name="other")
    direct.feed(5)
    loop = direct.loop()
    loop.run_epoch(direct.store, (1, 0), 1)
    direct.feed(7)
    direct.cluster.append(METRICS, b"app-1", b'{"name":"n","value":"?"}')
    kill_after_a_step(direct, loop, AGG, lost)
    direct.feed(8)
    direct.loop().run_epoch(Batch(0), (1, 2), 60)
    require_visible(direct, ROWS, AGG)
    assert direct.published()
    ends = [value for _, value in (*direct.records(TOPICS.dead), *direct.records(TOPICS.events)) if value is None]
    assert len(ends) == ({DEAD} <= {*lost} < {ROWS, AGG, DEAD})
    counts = [json.loads(value)["count"] for value in direct.values() if b'"n"' in value]
    assert counts == sorted(counts)
    assert counts[-1] == 8
    direct.cluster.append(METRICS, b"app-1", b'{"name":"n","value":"?"}')
    direct.loop().run_epoch(Batch(0), (1, 3), 60)
    require_visible(direct, ROWS, AGG, DEAD)
    assert [json.loads(value)["offset"] for value in direct.values(TOPICS.dead) if value] == [2, 4]


def test_a_step_whose_sums_were_seen_is_not_read_again_in_smaller_steps(caplog: pytest.LogCaptureFixture) -> None:
    """Only its positions are hidden. A count between those of two steps would be lower than the one that was seen."""
    direct = Direct()
    direct.feed(5)
    loop = direct.loop()
    loop.run_epoch(direct.store, (1, 0), 1)
    direct.feed(6, 7)
    kill_after_a_step(direct, loop, AGG, [ROWS])
    direct.cluster.delete(TOPICS.events)  # or the answer lacks it
    direct.loop(max_records=1).run_epoch(Batch(0), (1, 2), 60)
    assert "lost the markers of a step in metrics-table:0; it is published" in caplog.text
    counts = [json.loads(value)["count"] for value in direct.values()]
    assert counts == sorted(counts)


@pytest.mark.parametrize("lost", [[ROWS, SHARD], [ROWS], [SHARD]], ids=str)
def test_a_step_of_one_of_several_shards_is_published_once(lost: list[Place]) -> None:
    """Its partial sums and its positions are on two topics, and the combiner reads what is visible."""
    direct = Direct(shards=2)
    loops = [direct.loop(0), direct.loop(1), direct.combiner()]
    stores = [Batch(0), Batch(0), Batch(0)]
    direct.feed(5, key=b"app-1")
    direct.feed(50, key=b"app-4")
    for loop, store in zip(loops, stores, strict=True):
        loop.run_epoch(store, (1, 0), 1)
    before = json.loads(direct.values()[-1])["count"]
    direct.feed(6, key=b"app-1")
    direct.feed(51, key=b"app-4")
    kill_after_a_step(direct, loops[0], SHARD, lost)
    loops[0] = direct.loop(0)
    for loop in loops:
        loop.run_epoch(Batch(0), (1, 2), 60)
    require_visible(direct, ROWS, SHARD)
    assert (before, json.loads(direct.values()[-1])["count"]) == (55, 57)


def test_a_part_of_a_step_that_was_aborted_is_never_published(caplog: pytest.LogCaptureFixture) -> None:
    """It has partial sums without the positions row after them, so nobody knows what they include."""
    direct = Direct(shards=2)
    direct.feed(5, key=b"app-4")
    loops = [direct.loop(0), direct.loop(1), direct.combiner()]
    for loop in loops:
        loop.run_epoch(Batch(0), (1, 0), 1)
    cluster = direct.cluster
    rows = [(one.key, one.value) for one in cluster.partition(SHARD).entries if one.key and b"positions" not in one.key]
    assert rows
    direct.feed(6, key=b"app-4")
    for loop in loops:
        loop.run_epoch(Batch(0), (1, 1), 1)
    epoch = cluster.open_writer(WRITER) or 0
    cluster.add_partitions(WRITER, epoch, [SHARD])
    cluster.produce(WRITER, epoch, SHARD, rows)
    direct.lost = [SHARD]
    cluster.end(WRITER, epoch, "abort")
    direct.flush()
    direct.lost = []
    direct.loop(0).run_epoch(Batch(0), (1, 2), 60)
    direct.combiner().run_epoch(Batch(0), (1, 2), 60)
    require_visible(direct, SHARD)
    assert "lost the markers of a step in metrics-shards:0; it is aborted" in caplog.text
    assert json.loads(direct.values()[-1])["count"] == 6


def test_sums_of_a_step_that_was_aborted_are_never_published(caplog: pytest.LogCaptureFixture) -> None:
    """They include records after the published positions."""
    direct = Direct()
    direct.feed(5)
    direct.loop().run_epoch(Batch(0), (1, 0), 1)
    (key, value), *_ = direct.records(TOPICS.agg)
    assert value is not None
    later = value.replace(b'{"0":0}', b'{"0":1}')
    assert later != value
    cluster, epoch = direct.cluster, direct.cluster.open_writer(WRITER) or 0
    cluster.add_partitions(WRITER, epoch, [AGG])
    cluster.produce(WRITER, epoch, AGG, [(key, later)])
    direct.lost = [AGG]
    cluster.end(WRITER, epoch, "abort")
    direct.flush()
    direct.lost = []
    direct.loop().run_epoch(Batch(0), (1, 2), 60)
    require_visible(direct, AGG)
    assert "lost the markers of a step in metrics-agg:0; it is aborted" in caplog.text
    assert later not in direct.values()


def test_a_dead_letter_without_its_marker_is_that_of_the_shard_of_its_record() -> None:
    """All shards write them. It becomes visible with that shard's next step."""
    direct = Direct(shards=2)
    for shard in range(2):
        direct.loop(shard).run_epoch(Batch(0), (1, 0), 1)
    loop, bad = direct.loop(1), (METRICS, b"app-1", b'{"name":"n","value":"?"}')
    loop.run_epoch(direct.store, (1, 0), 1)
    direct.feed(5, key=b"app-1")
    direct.cluster.append(*bad)
    kill_after_a_step(direct, loop, Place(TOPICS.shards, 1), [DEAD])
    direct.cluster.append(DEAD, None, None)  # as another shard ends its own
    direct.loop(1).run_epoch(Batch(0), (1, 2), 60)
    require_visible(direct, DEAD)
    assert [json.loads(value)["offset"] for value in direct.values(TOPICS.dead) if value] == [1]


@pytest.mark.parametrize("lost", [[Place(TOPICS.shards, 2), AGG], [Place(TOPICS.shards, 2)], [AGG]], ids=str)
def test_a_step_of_the_combiner_is_published(lost: list[Place]) -> None:
    """What it publishes again is what readers have not seen."""
    direct = Direct(shards=2)
    loops = [direct.loop(0), direct.loop(1), direct.combiner()]
    for number, loop in enumerate(loops):
        direct.feed(5, key=b"app-%d" % number)
        loop.run_epoch(Batch(0), (1, 0), 1)
    direct.feed(6, key=b"app-1")
    for loop in loops[:2]:
        loop.run_epoch(Batch(0), (1, 1), 1)
    kill_after_a_step(direct, loops[2], AGG, lost)
    direct.combiner().run_epoch(Batch(0), (1, 2), 60)
    require_visible(direct, AGG, Place(TOPICS.shards, 2))
    counts = [json.loads(value)["count"] for value in direct.values()]
    assert counts == sorted(counts)
    assert counts[-1] == 16


@pytest.mark.parametrize(("away_s", "seconds"), [(0, 2), (3, 20)])
def test_a_loop_that_goes_on_without_its_markers_begins_again_with_the_next_epoch(away_s: int, seconds: int) -> None:
    """The broker was killed and is back before the next step, which publishes no sum. Readers of the sums wait.

    After a commit that takes long the loop looks at once.
    """
    direct = Direct()
    direct.feed(5)
    loop = direct.loop()
    loop.run_epoch(direct.store, (1, 0), 1)
    direct.lost = [AGG]
    direct.feed(6)

    def fail(request: str) -> None:
        if request.startswith("commit") and direct.lost:
            direct.pass_time(away_s)
        elif request.startswith("open"):
            direct.lost = []

    direct.fail = fail
    restarts = loop.run_epoch(direct.store, (1, 1), seconds).restarts
    direct.lost = []
    assert restarts + loop.run_epoch(direct.store, (1, 2), 20).restarts == 1
    assert restarts == (away_s > 0)
    require_visible(direct, ROWS, AGG)
    assert [json.loads(value)["count"] for value in direct.values()] == [5, 6, 6]


def test_a_transaction_of_a_newer_writer_is_not_ended() -> None:
    """It ends the older task, which ends nothing any more."""
    direct = Direct()
    direct.loop().run_epoch(direct.store, (1, 0), 1)
    cluster, opened = direct.cluster, []

    def fail(request: str) -> None:
        if request == "bounds" and f"open {WRITER}" in direct.requests and not opened:
            opened.append(cluster.open_writer(WRITER))
            cluster.add_partitions(WRITER, opened[0], [ROWS])
            cluster.produce(WRITER, opened[0], ROWS, [(key_of(0), row)])

    row = encode(PositionsRow(shard=0, claim=(2, 0), step=2, positions={"metrics": {"0": 0}}, topics={}))
    direct.requests.clear()
    direct.fail = fail
    with pytest.raises(FencedError, match="a newer task has it"):
        direct.loop().run_epoch(direct.store, (1, 1), 600)
    assert cluster.open_transactions()


def test_a_transaction_of_another_id_stops_the_loop() -> None:
    """Kafka's tool must end it. The message has the command. A stop is noticed meanwhile."""
    direct = Direct()
    direct.loop().run_epoch(direct.store, (1, 0), 1)
    epoch = direct.cluster.open_writer("other")
    direct.cluster.add_partitions("other", epoch or 0, [ROWS])
    direct.cluster.produce("other", epoch or 0, ROWS, [(b"key", b"value")])
    with pytest.raises(TallystreamError, match="abort --topic metrics-table --partition 0 --start-offset 3"):
        direct.loop().run_epoch(direct.store, (1, 1), 600)
    direct.stopped = True
    direct.loop().run_epoch(direct.store, (1, 2), 600)
