"""Markers that Kafka has lost: the next writer ends the transaction, as readers have seen it."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

import pytest

from support.simulation.checkpoints import Batch
from support.simulation.direct import METRICS, ROWS, Direct
from support.simulation.system import TOPICS
from tallystream.errors import TallystreamError
from tallystream_aggregator.stream.broker import FencedError, Place
from tallystream_aggregator.stream.epochs import EpochLoop
from tallystream_aggregator.stream.positions import LoopId, PositionsRow, encode, key_of

AGG, DEAD = Place(TOPICS.agg, 0), Place(TOPICS.dead, 0)
WRITER = "tallystream-aggregator-0"
KEYS = b"app-4", b"app-1"
"""An instance of each of two shards."""


class Killed(Exception):  # noqa: N818 (it is no error of the loop)
    """The process ends."""


def loops_of(direct: Direct, **settings: Any) -> list[EpochLoop]:
    """Return new loops of all shards, and the combiner of several."""
    loops: list[EpochLoop] = [direct.loop(shard, **settings) for shard in range(direct.shards)]
    return [*loops, direct.combiner()] if direct.shards > 1 else loops


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


@pytest.mark.parametrize("lost", ["rows sums dead", "rows sums", "rows dead", "sums dead", "rows", "sums", "dead"])
@pytest.mark.parametrize(
    ("shards", "number"), [(1, 0), (2, 0), (2, 1), (2, 2)], ids=["one", "0 of 2", "1 of 2", "combiner"]
)
def test_a_step_without_its_markers_is_published_once(shards: int, number: int, lost: str) -> None:
    """If nobody has seen a part of it, it is aborted and read again. Otherwise the rest becomes visible, too.

    All shards write dead letters: those of a published step become visible with the next step of the same shard. If the
    sums were seen, the records are not read again in smaller steps: a count between two steps would be lower than that.
    """
    direct, loop = Direct(shards=shards, partitions=2), LoopId(TOPICS, number, shards)
    stores = [Batch(0) for _ in range(3)]

    def feed(*values: int) -> None:
        for key in KEYS:
            direct.cluster.append(METRICS, key, b'{"name":"n","value":"?"}')
            direct.feed(*values, key=key)

    def run(attempt: int, **settings: Any) -> list[EpochLoop]:
        loops = loops_of(direct, **settings)
        for one, store in zip(loops, stores, strict=False):
            one.run_epoch(store, (1, attempt), 15)
        return loops

    direct.feed(1, place=Place("metrics", 1), name="other")
    feed(5)
    loops = run(0)
    feed(6, 7)
    for one, store in zip(loops[:number], stores, strict=False):
        one.run_epoch(store, (1, 1), 1)
    places = {"rows": loop.rows, "sums": loop.sums, "dead": DEAD}
    kill_after_a_step(direct, loops[number], loop.sums, [places[name] for name in lost.split()])
    if "sums" not in lost:
        direct.cluster.delete(TOPICS.events)  # or the answer lacks it
    run(2, max_records=1)
    require_visible(direct, loop.rows, loop.sums)
    feed(8)
    run(3)
    require_visible(direct, loop.rows, loop.sums, DEAD)
    counts = [json.loads(value)["count"] for value in direct.values() if b'"n"' in value]
    assert counts == sorted(counts)
    assert counts[-1] == 16
    letters = [value for _, value in direct.records(TOPICS.dead)]
    assert sorted(json.loads(value)["offset"] for value in letters if value) == [0, 2, 4, 7, 10, 12]
    assert letters.count(None) == (number < shards and "dead" in lost and lost != "rows sums dead")


@pytest.mark.parametrize("shards", [1, 2])
def test_what_was_aborted_is_never_published(shards: int, caplog: pytest.LogCaptureFixture) -> None:
    """Sums include records after the published positions. Nobody knows what partial sums without positions include."""
    direct, sums = Direct(shards=shards), LoopId(TOPICS, 0, shards).sums
    for value in (5, 6):
        direct.feed(value, key=KEYS[0])
        for attempt, loop in enumerate(loops_of(direct)):
            loop.run_epoch(Batch(0), (value, attempt), 1)
    cluster = direct.cluster
    written = [(one.key, one.value) for one in cluster.partition(sums).entries if one.key and one.value]
    aborted = [(key, value.replace(b'{"0":1}', b'{"0":2}')) for key, value in written if b"positions" not in key]
    assert aborted
    epoch = cluster.open_writer(WRITER) or 0
    cluster.add_partitions(WRITER, epoch, [sums])
    cluster.produce(WRITER, epoch, sums, aborted)
    direct.lost = [sums]
    cluster.end(WRITER, epoch, "abort")
    direct.flush()
    direct.lost = []
    for attempt, loop in enumerate(loops_of(direct)):
        loop.run_epoch(Batch(0), (7, attempt), 60)
    require_visible(direct, sums)
    assert f"lost the markers of a step in {sums}; it is aborted" in caplog.text
    assert [json.loads(value)["count"] for value in direct.values()] == [5, 6]


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
