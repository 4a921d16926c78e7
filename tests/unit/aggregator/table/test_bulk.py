"""Many records at a time: what is kept of them is what is kept of them one by one, whatever they look like."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tallystream.aggregator.table import Record, TableSettings, bulk, shapes
from tallystream.aggregator.table.chunk import Chunk
from tallystream.aggregator.table.compaction import Compactor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tallystream.aggregator.table.series import Row

AT = 1_700_000_000_000
SETTINGS = TableSettings(max_record_bytes=200)
LIFE = b"01HF7YAT00AAAAAAAAAAAAAAAA"

PLAIN = (
    b'{"name":"a","value":%d}',
    b'{"name":"a","value":%d,"ts":1700000000000}',
    b'{"name": "a", "value": %d, "ts": 17}',
    b'{"name":"b","type":"counter","value":%d,"at":0}',
    b'{"name":"b","value":%d,"tags":{"zone":"eu"}}',
    b'{"tags":{"a\\"value\\":":"1"},"name":"b","value":%d}',
    b'{"name":"c","value":%d,"ts":1.017}',
)
MISLEADING = (
    b'{"name":"a","value":0%d}',
    b'{"name":"a","value":-%d}',
    b'{"name":"a","value":%d.5}',
    b'{"name":"a","value":%de1}',
    b'{"name":"a","value":%d00000000000000000000}',
    b'{"name":"a","value":95%017d}',
    b'{"name":"a","value":%d,"ts":1e999}',
    b'{"name":"a","value":%d,"ts":1e9}',
    b'{"name":"a","value":%d,"ts":1e017}',
    b'{"name":"a","value":%d,"ts":tru17}',
    b'{"name":"a","value":%d,"ts" :17}',
    b'{"name":"a","value":%d,"ts":17 }',
    b'{"name":"a","value":%d,"ts":17}\n',
    b'{"name":"a","value":%d,"x":[1,2:3}',
    b'{"name":"a","value":%d:3}',
    b'{"name":"a","value":%d}}',
    b'{"name":"a","value":%d',
    b'{"name":"a","value":  %d }',
    b'{"name":"a","value":%d,"ts":01}',
    b'{"name":"a","value":%d,"ts":1.50}',
    b'{"name":"a","value":%d,"ts":-1}',
    b'{"name":"a","value":%d,"ts":}',
    b'{"name":"a","value":%d,"ts":11111111111111111111}',
    b'{"name":"a","value":5,"value":%d}',
    b'{"name":"a","value":%d,"value":5}',
    b'{"name":"a","value":%d,"name":5}',
    b'{"name":"a","value":%d,"tags":{"x":1}}',
    b'{"name":"a","value":%d,"tags":{"value":"7"}}',
    b'{"name":"a","nested":{"value":%d},"value":3}',
    b'{"name":"a\\"value\\":%d","value":3}',
    b'{"name":"x\\\\"value":%d}',
    b'{"name":"a\\u0000","value":%d}',
    b'{"value":%d}',
    b'{"name":"a","type":"gauge","value":%d}',
    b'{"name":"a","metrics":[],"value":%d}',
    b'{"name":"a","value":%d,"tags":{"metrics":"x"}}',
    b'{"name":"a","value":%d,"long":"' + b"x" * 200 + b'"}',
    b'{"name":"\xff","value":%d}',
    b'"value":%d',
    b'"value":%d}',
    b'{"value": %d',
    b'{"v":1,"app":"shop","life":"' + LIFE + b'","part":0,"seq":%d,"prev":1700000000000,"ts":1700000000000,'
    b'"every_ms":1000,"final":false,"metrics":[{"type":"counter","name":"a","count":3}]}',
)
texts = st.sampled_from(PLAIN * 6 + MISLEADING)
values = st.one_of(st.integers(0, 12), st.integers(0, 12), st.integers(10**17, 10**19))
keys = st.sampled_from([b"app-1", b"app-1", b"app-2", b"app-3", b"app-4", b"app-5", None, b"", b"\xff"])
odd = st.sampled_from([None, b"", b"}", b'"value":', b'"value": '])
bodies = st.one_of(*[st.builds(lambda text, n: text % n, texts, values)] * 9, odd)
records = st.lists(st.tuples(keys, bodies, st.integers(-3_000, 3_000)), max_size=60)


def rows_of(written: Sequence[tuple[bytes | None, bytes | None, int]]) -> list[Row]:
    return [(n * 2, AT + n * 1000 + jitter, key, body) for n, (key, body, jitter) in enumerate(written)]


def singly(rows: list[Row], shards: int) -> list[Record]:
    compactor = Compactor("metrics", 0, SETTINGS, shards)
    return sorted([*compactor.add(rows), *compactor.end()], key=lambda record: record.offset)


def in_bulk(rows: list[Row], shards: int, size: int) -> list[Record]:
    compactor = bulk.BulkCompactor("metrics", 0, SETTINGS, shards)
    kept: list[Record] = []
    for begin in range(0, len(rows), size):
        kept += compactor.add(Chunk.of(rows[begin : begin + size]))
    return sorted([*kept, *compactor.end()], key=lambda record: record.offset)


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(records, st.integers(1, 30), st.integers(1, 3), st.tuples(st.integers(1, 20), st.integers(1, 50)))
def test_what_is_kept_of_many_is_what_is_kept_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
    written: list[tuple[bytes | None, bytes | None, int]],
    size: int,
    shards: int,
    at_a_time: tuple[int, int],
) -> None:
    """Each kept record, its clock and what it stands for are the same, wherever chunks, pieces and stretches end."""
    piece, stretch = at_a_time
    monkeypatch.setattr(bulk, "PIECE", piece)
    monkeypatch.setattr(bulk, "STRETCH", max(stretch, size))
    rows = rows_of(written)
    assert in_bulk(rows, shards, size) == singly(rows, shards)


@pytest.mark.parametrize("text", PLAIN)
def test_records_that_differ_in_numbers_alone_are_not_read_one_by_one(
    monkeypatch: pytest.MonkeyPatch, text: bytes
) -> None:
    """Counters that grow, those of one instance above those of another, with a time that goes on beside the value."""
    monkeypatch.setattr(Compactor, "take", None)
    monkeypatch.setattr(shapes, "AT_FIRST", 25)
    grown = [(n, text.replace(b"17", b"%d" % (17 + n))) for n in range(200)]
    rows = rows_of([(b"app-%d" % (n % 2), text % (n * n + (n + 1) % 2 * 10**6), 0) for n, text in grown])
    kept = in_bulk(rows, 1, 50)
    assert [record.offset for record in kept] == [0, 2, 396, 398]
    assert [record.folded.dropped for record in kept if record.folded is not None] == [98, 98]


@pytest.mark.parametrize("key", [None, b"", b"\xff"])
def test_records_of_no_instance_are_all_kept(key: bytes | None) -> None:
    """Each is a dead letter."""
    assert len(in_bulk(rows_of([(key, PLAIN[0] % n, 0) for n in range(20)]), 1, 5)) == 20


@pytest.mark.parametrize("text", MISLEADING)
def test_a_text_that_may_mislead_is_compacted_as_one_by_one(text: bytes) -> None:
    """Among growing counters of the same instance, and by itself, it is kept or dropped as it should be."""
    written = [(b"app-1", PLAIN[n % 2] % n if n % 5 else text % (1 + n), 0) for n in range(40)]
    for some in (written, [(key, text % n, 0) for n, (key, _, _) in enumerate(written, 1)]):
        assert in_bulk(rows_of(some), 2, 7) == singly(rows_of(some), 2)


def test_a_stretch_ends_by_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded for large records as it is for many."""
    monkeypatch.setattr(bulk, "STRETCH_BYTES", 200)
    compactor = bulk.BulkCompactor("metrics", 0, SETTINGS)
    kept = [compactor.add(Chunk.of(rows_of([(b"app-1", PLAIN[0] % n, 0)] * 5))) for n in range(10)]
    assert [len(records) for records in kept].count(1) == 1


def test_records_that_are_long_are_taken_at_once() -> None:
    """Snapshots have no value to look for: what is kept is known when they came, and those before are first."""
    snapshot, compactor = MISLEADING[-1], bulk.BulkCompactor("metrics", 0, TableSettings())
    snapshot += b" " * bulk.LONG
    assert compactor.add(Chunk.of(rows_of([(b"app-1", PLAIN[0] % 1, 0)]))) == []
    later = Chunk.of([(n, AT, b"app-1", snapshot % n) for n in range(10, 20)])
    assert [record.offset for record in compactor.add(later)] == [0, 10]
    assert [record.offset for record in compactor.end()] == [19]


def test_more_at_a_time_than_are_looked_at_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their places and the numbers of their counters would not fit into one number."""
    monkeypatch.setattr(bulk, "STRETCH", 2)
    with pytest.raises(ValueError, match="3 records at a time; 2 at most are taken"):
        bulk.BulkCompactor("metrics", 0, SETTINGS).add(Chunk.of(rows_of([(b"a", b"{}", 0)] * 3)))


def test_texts_of_one_record_each_are_not_learned_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A time before the value makes a text of each record: after some, these records are read one by one."""
    learned: list[bytes] = []
    monkeypatch.setattr(shapes, "AT_FIRST", 10)
    monkeypatch.setattr(shapes, "metric_of", lambda text, of=shapes.metric_of: (learned.append(text), of(text))[1])
    rows = rows_of([(b"app-1", b'{"ts":%d,"name":"a","value":%d}' % (AT + n, n), 0) for n in range(500)])
    assert [record.offset for record in in_bulk(rows, 1, 100)] == [0, 998]
    assert len(learned) == 10
    learned.clear()
    unread = [(b"app-1", b'{"name":"a","value":0%d}' % n, 0) for n in range(100)]
    assert len(in_bulk(rows_of(unread), 1, 100)) == 100
    assert learned == []
    few = rows_of([(b"app-%d" % (n % 5), b'{"name":"a%d","value":%d}' % (n % 50, n), 0) for n in range(500)])
    in_bulk(few, 1, 100)
    assert len(learned) == 10
