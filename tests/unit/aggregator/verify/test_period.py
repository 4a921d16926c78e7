"""What verify reads from the ledger and from positions rows."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from support.undecodable import UNDECODABLE
from tallystream_aggregator.kafka.ledger import LedgerRow
from tallystream_aggregator.verify.advance import Advance, Change
from tallystream_aggregator.verify.ledger import read
from tallystream_aggregator.verify.lives import Settings
from tallystream_aggregator.verify.published import Moment, moment
from tallystream_aggregator.verify.replay import Replay
from tallystream_aggregator.verify.tags import Tags

ZERO, ONE = "metrics:0", "metrics:1"
BEGIN_MS = 1_700_000_000_000


def opened(generation: int, *, start: int | None = None) -> LedgerRow:
    """Return the row of a driver with its generation."""
    begin = {} if start is None else {"metrics": {"0": start}}
    return LedgerRow(kind="opened", generation=generation, ts=generation, start=begin, shards=1)


def epoch(end: int) -> LedgerRow:
    """Return the row of an epoch that ended at an offset. Its time is that of its end."""
    return LedgerRow(kind="epoch", generation=1, batch=end, ts=end, end={"metrics": {"0": end}})


def test_settings_change_at_the_end_of_the_last_epoch_or_where_the_row_says() -> None:
    """A table that begins has those of its first driver, and no earlier ones."""
    split = replace(opened(4), shards=3, forget_after_ms=5, end={"metrics": {"0": 25}})
    rows = [opened(1, start=0), epoch(10), opened(2, start=7), epoch(20), opened(3), split, epoch(30)]
    changes = [Change({ZERO: 7}, 1, 0), Change({ZERO: 20}, 1, 0), Change({ZERO: 25}, 3, 5)]
    assert read(rows, Tags()) == (Settings(), changes)


def test_the_settings_of_the_replay_come_from_the_ledger() -> None:
    """The topics of OTLP metrics are those of all rows, the memory of the table is the newest one."""
    rows = [replace(opened(1), otlp=["a"], max_table_bytes=7), replace(epoch(10), otlp=["a", "b"])]
    tags = Tags(frozenset({"pod"}))
    assert read(rows, tags)[0] == Settings(otlp_topics=("a", "b"), max_table_bytes=7, tags=tags)
    assert read([*rows, replace(opened(2), max_table_bytes=9)], tags)[0].max_table_bytes == 9
    assert read([], Tags()) == (Settings(), [])


def test_a_positions_row_has_the_moment_of_a_shard_or_of_all() -> None:
    """The combiner's has the positions of each. Sums name what all have read. Without shards, none has begun."""
    row = {"v": 1, "shard": 0, "of": 2, "sum_tags": {"drop": ["pod"]}, "positions": {"metrics": {"0": 3}}}
    tags = Tags(frozenset({"pod"}))
    assert moment(json.dumps(row).encode()) == Moment(({ZERO: 3},) * 2, tags)
    began = row | {"begin": {"metrics": {"1": 7}}}
    assert moment(json.dumps(began).encode()) == Moment(({ZERO: 3},) * 2, tags, {ONE: 7})
    combined = row | {"shard": 2, "shards": {"1": {"metrics": {"0": 4}}, "0": {"metrics": {"0": 3, "1": 1}}}}
    found = moment(json.dumps(combined).encode())
    assert found is not None
    assert (found.shards, found.ends) == (({ZERO: 3, ONE: 1}, {ZERO: 4}), {ZERO: 3})
    assert moment(json.dumps(row | {"shard": 2}).encode()) is None


@pytest.mark.parametrize("value", [None, *UNDECODABLE.values(), b'{"shard":1,"of":2}'])
def test_what_is_no_positions_row_is_an_error(value: bytes | None) -> None:
    """Nothing else may be at its key."""
    with pytest.raises(ValueError, match="no positions row"):
        moment(value)


def snapshot(count: int) -> bytes:
    """Return a snapshot with one counter."""
    header = {"v": 1, "app": "shop", "life": "01HF7YAT00" + "A" * 16, "part": 0, "seq": count, "ts": 0}
    metrics = [{"type": "counter", "name": "n", "count": count}]
    return json.dumps(header | {"every_ms": 1000, "final": False, "metrics": metrics}).encode()


def test_a_forget_record_for_another_number_of_shards_than_the_table_has_is_refused() -> None:
    """The number is that at the record: the table may be split later."""
    forget = b'{"v":1,"forget":{"metric":"n","shards":2}}'
    values = [snapshot(1), forget, snapshot(2), forget]
    records = [(offset, BEGIN_MS + offset, b"app-1", value) for offset, value in enumerate(values)]
    replay = Replay()
    advance = Advance(replay, {}, {ZERO: iter(records)})
    counter = ("shop", "counter", "n", ())
    advance.change(Change({}, 1, 0))
    advance.change(Change({ZERO: 3}, 2, 0))
    assert dict(advance.letters) == {(ZERO, 1): 1}
    assert replay.sums()[counter]["count"] == 2
    advance.finish([{ZERO: 4}] * 2)
    assert dict(advance.letters) == {(ZERO, 1): 1}
    assert replay.sums()[counter]["count"] == 0
