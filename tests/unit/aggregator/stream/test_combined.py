"""What the combiner publishes of the partial sums of shards."""

from __future__ import annotations

from typing import Any

from support.schedules import BEGIN_MS, play
from tallystream_aggregator.kafka.topics import Topics
from tallystream_aggregator.stream.broker import Chunk, Place
from tallystream_aggregator.stream.combiner_loop import Combined
from tallystream_aggregator.stream.compaction import StepRecords
from tallystream_aggregator.stream.outputs import Step
from tallystream_aggregator.stream.positions import PositionsRow, by_topic
from tallystream_aggregator.stream.restore import positions_of
from tallystream_aggregator.table import State, Table, TableSettings

TOPICS, SETTINGS = Topics(), TableSettings(short_form_every_ms=5_000)


class Shard:
    """A shard that applies records, and its partition of `metrics-shards`."""

    def __init__(self, shard: int, of: int) -> None:
        self.table = Table(State(shard=shard, shards=of), SETTINGS)
        self.place, self.end, self.of = Place(TOPICS.shards, shard), 0, of

    def step(self, chunks: list[Chunk]) -> list[tuple[int, int, bytes | None, bytes | None]]:
        """Apply chunks and return what the step appends to the partition."""
        records = StepRecords(self.table)
        for chunk in chunks:
            records.add(chunk)
        records.end()
        row = PositionsRow(
            shard=self.place.partition,
            of=self.of,
            claim=(1, 0),
            step=1,
            positions=by_topic(positions_of(self.table.state)),
            topics={},
        )
        written = [o for o in Step(self.table.outputs(), [], row).records(TOPICS) if o.place == self.place]
        found = [(self.end + n, BEGIN_MS, output.key, output.value) for n, output in enumerate(written)]
        self.end += len(found) + 1  # with the marker
        return found


def chunks() -> list[Chunk]:
    records = play(list(range(400, 440)))
    found = []
    for partition in (0, 1):
        rows = [(r.offset, r.timestamp_ms, r.key, r.value) for r in records if r.partition == partition]
        found.append(Chunk(Place("metrics", partition), rows, len(rows)))
    return found


def begun(shards: int) -> Combined:
    """Return what the first shard has begun, without any sum."""
    combined, first = Combined(shards), Shard(0, shards)
    combined.add(Chunk(first.place, first.step([]), first.end), 0)
    return combined


def sums(combined: Combined) -> dict[Any, Any]:
    return {total.metric: total for total in combined.changes()}


def test_nothing_is_published_before_every_shard_has_begun() -> None:
    """The sums of some of the shards would rise by the whole table later, and are of no moment."""
    shards, combined = [Shard(n, 2) for n in range(2)], Combined(2)
    first, second = (shard.step(chunks()) for shard in shards)
    assert combined.add(Chunk(shards[0].place, first, shards[0].end), 0)
    assert sums(combined) == {}
    assert combined.add(Chunk(shards[1].place, second, shards[1].end), 0)
    assert sums(combined)


def test_partial_sums_count_from_the_positions_row_on() -> None:
    """A transaction that is read in parts changes nothing until its last record."""
    shard, combined = Shard(1, 2), begun(2)
    rows = shard.step(chunks())
    for row in rows[:-1]:
        assert not combined.add(Chunk(shard.place, [row], row[0] + 1), 0)
        assert sums(combined) == {}
    assert combined.add(Chunk(shard.place, rows[-1:], shard.end), 0)
    assert combined.positions[shard.place] == rows[-1][0] + 1


def test_what_was_published_is_not_published_again() -> None:
    """A combiner that starts again reads all partial sums, and publishes those that came after its positions."""
    shard, combined = Shard(1, 2), begun(2)
    before = shard.step([chunk._replace(rows=chunk.rows[:5], end=5) for chunk in chunks()])
    published = shard.end
    later = shard.step([chunk._replace(rows=chunk.rows[5:]) for chunk in chunks()])
    combined.add(Chunk(shard.place, [*before, *later], shard.end), published)
    changed = sums(combined)
    assert changed
    fresh = begun(2)
    fresh.add(Chunk(shard.place, [*before, *later], shard.end), 0)
    everything = sums(fresh)
    assert changed.items() <= everything.items()


def test_a_deleted_partial_sum_is_taken_out() -> None:
    """After the table was split, a shard may not have a metric any more: another one has its lives."""
    shard, combined = Shard(1, 2), begun(2)
    rows = shard.step(chunks())
    deleted = (shard.end, BEGIN_MS, rows[0][2], None)
    last = (shard.end + 1, BEGIN_MS, rows[-1][2], rows[-1][3])
    combined.add(Chunk(shard.place, [*rows, deleted, last], shard.end + 2), 0)
    assert len(sums(combined)) == len(rows) - 2


def test_a_metric_that_no_shard_has_any_more_is_dropped_after_its_last_sum() -> None:
    """Otherwise a combiner would keep every name that ever was. The metric may come back."""
    shard, combined = Shard(1, 2), begun(2)
    snapshot = b'{"name":"n","value":5}'
    for number, (value, kept, count) in enumerate([(snapshot, 1, 5), (None, 0, 0), (snapshot, 1, 5)]):
        chunk = Chunk(Place("metrics", 0), [(number, BEGIN_MS, b"app-2", value)], number + 1)
        combined.add(Chunk(shard.place, shard.step([chunk]), shard.end), 0)
        (total,) = combined.changes()
        assert (total.count, total.ts, combined_metrics(combined)) == (count, BEGIN_MS, kept)


def test_a_combiner_that_starts_again_does_not_keep_what_no_shard_has() -> None:
    """What was published is not published again, and the empty partial sums on the topic are not kept."""
    shard, combined = Shard(1, 2), begun(2)
    chunk = Chunk(
        Place("metrics", 0), [(0, BEGIN_MS, b"app-2", b'{"name":"n","value":5}'), (1, BEGIN_MS, b"app-2", None)], 2
    )
    combined.add(Chunk(shard.place, shard.step([chunk]), shard.end), shard.end)
    assert (combined.changes(), combined_metrics(combined)) == ([], 0)


def combined_metrics(combined: Combined) -> int:
    return len(combined._group._shard_sums)  # it has no effect but memory
