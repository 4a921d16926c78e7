"""The rows of the ledger, and the epochs of writers."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from support.undecodable import UNDECODABLE
from tallystream.errors import ConfigError
from tallystream_aggregator.jobs import rebuild
from tallystream_aggregator.jobs.aggregate import writer
from tallystream_aggregator.kafka import ledger, start_position
from tallystream_aggregator.kafka.ledger import LedgerRow
from tallystream_aggregator.kafka.reader import Read
from tallystream_aggregator.kafka.topic_selection import Selection
from tallystream_aggregator.kafka.topics import Topics
from tallystream_aggregator.spark.query import start as beginning
from tallystream_aggregator.versions import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

END = {"metrics": {"0": 7}}
OPENED = LedgerRow(kind="opened", query=ledger.QUERY, epoch=3, ts=1)
BATCH = LedgerRow(kind="batch", query=ledger.QUERY, epoch=3, batch=1, ts=2, end=END)


def topic_with(*values: bytes | None) -> Callable[..., Iterator[Read]]:
    """Return a function that reads a topic with these values."""
    return lambda *_args, **_options: (Read(b"k", value, offset) for offset, value in enumerate(values))


def test_a_row_is_decoded_as_it_was_encoded() -> None:
    """The JSON has `v`."""
    assert ledger.decode(ledger.encode(BATCH)) == BATCH
    assert json.loads(ledger.encode(OPENED))["v"] == 1
    assert ledger.key(BATCH) == b'["aggregate",1]'


@pytest.mark.parametrize("value", [None, *UNDECODABLE.values()], ids=["none", *UNDECODABLE])
def test_a_record_that_is_not_a_row_is_skipped_with_a_warning(
    value: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    """The rows around it are read."""
    with caplog.at_level(logging.WARNING):
        assert list(ledger.rows([ledger.encode(OPENED), value, ledger.encode(BATCH)])) == [OPENED, BATCH]
    assert "a record of the ledger is not a row and is skipped" in caplog.text


@pytest.mark.parametrize("value", UNDECODABLE.values(), ids=UNDECODABLE)
@pytest.mark.parametrize(
    ("read", "wanted"),
    [
        (lambda: beginning._has_begun(Topics(), {}), True),
        (lambda: rebuild.finished_offsets(Topics(), {}), END),
        (lambda: start_position._from_ledger(start_position.At(2, ledger=True), "metrics-ledger", {}), END),
    ],
    ids=["start", "rebuild", "start position"],
)
def test_a_record_that_is_not_a_row_stops_no_command(
    monkeypatch: pytest.MonkeyPatch, value: bytes, read: Callable[[], Any], wanted: object
) -> None:
    """Each reader of the ledger returns the row after it."""
    monkeypatch.setattr(ledger, "read_topic", topic_with(value, ledger.encode(BATCH)))
    assert read() == wanted


@pytest.mark.parametrize("starts", [ledger.TAIL - 1, ledger.TAIL, 10 * ledger.TAIL])
def test_the_last_batch_is_found_before_many_failed_starts(monkeypatch: pytest.MonkeyPatch, starts: int) -> None:
    """Each start writes a row. Without the batch, a new table could begin although there was one."""
    values = [ledger.encode(row) for row in (OPENED, replace(BATCH, otlp=["a"]), *[OPENED] * starts)]

    def read(*_: object, last: int, **_options: object) -> Iterator[Read]:
        return (Read(b"k", value, offset) for offset, value in enumerate(values[-last:]))

    monkeypatch.setattr(ledger, "read_topic", read)
    assert beginning._has_begun(Topics(), {})
    assert rebuild.finished_offsets(Topics(), {}) == END
    assert ledger.otlp_topics(ledger.read_rows("metrics-ledger", {})) == ["a"]
    del values[1]
    assert not beginning._has_begun(Topics(), {})


def test_the_highest_epoch_ignores_other_queries() -> None:
    """Without a row of the aggregator there is none."""
    other = LedgerRow(kind="batch", query="other", epoch=9, ts=1)
    assert ledger.highest_epoch([OPENED, other, LedgerRow(kind="opened", query=ledger.QUERY, epoch=2, ts=3)]) == 3
    assert ledger.highest_epoch([other]) is None


@pytest.mark.parametrize(
    ("rows", "table", "wanted"),
    [
        ([OPENED], [b'{"epoch":7}'], 4),
        ([], [b'{"epoch":2,"batch":9}'], 6),
        ([], [b'{"epoch":7,"batch":9}', b'{"epoch":6}'], 8),
        ([], [None], 9),
        ([], [b'{"epoch":4611686018427387904}'], 6),
    ],
    ids=["the ledger's", "of a sum", "of a row", "of a deletion", "a row of no writer"],
)
def test_the_next_epoch_follows_that_of_the_ledger_or_of_the_topics(
    monkeypatch: pytest.MonkeyPatch, rows: list[LedgerRow], table: list[bytes | None], wanted: int
) -> None:
    """The topics are read only if the ledger has lost its rows. A record that is not a row has no epoch."""
    topics = Topics()
    of_sums = [b'{"app":"a","name":"n","type":"counter","ts":1,"epoch":%d}' % epoch for epoch in (5, 1)]
    values = {topics.agg: [*of_sums, *UNDECODABLE.values()], topics.table: table}

    def read(topic: str, _kafka: object, **_options: object) -> Iterator[Read]:
        return (Read(b"k", value, 0, 0, UNKNOWN if value else (8, 1)) for value in values[topic])

    monkeypatch.setattr(ledger, "read_topic", read)
    assert writer._next_epoch(rows, topics, {}) == wanted


def test_a_new_table_has_the_first_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """All topics are empty."""
    monkeypatch.setattr(ledger, "read_topic", topic_with())
    assert writer._next_epoch([], Topics(), {}) == 1


def test_the_topics_of_otlp_metrics_are_those_of_the_last_batch() -> None:
    """An older batch, a row "opened" and another query say nothing. Without a batch they are unknown."""
    later = replace(BATCH, batch=2, otlp=["a", "b"])
    assert ledger.otlp_topics([replace(BATCH, otlp=["a"]), later, OPENED, replace(BATCH, query="ship")]) == ["a", "b"]
    assert ledger.otlp_topics([BATCH]) == []
    assert ledger.otlp_topics([OPENED]) is None
    assert ledger.decode(ledger.encode(later)) == later


def test_a_topic_stays_one_of_otlp_metrics() -> None:
    """Left out, its instances would stay in the sums; read as snapshots, its records would be dead letters."""
    rows, ends = [replace(BATCH, otlp=["a", "b"])], {"metrics": {"0": 1}, "a": {"0": 1}, "b": {"0": 1}}
    beginning.require_otlp(ends, rows, Selection("metrics", otlp=("b", "c", "a")), "place")
    beginning.require_otlp({"metrics": {"0": 1}}, rows, Selection("metrics"), "place")  # a newer table
    for selection in (Selection("metrics", otlp=("a",)), Selection("metrics", ".*", otlp=("a",))):
        with pytest.raises(ConfigError, match="has read OTLP metrics from b: add --otlp-topic b, or begin"):
            beginning.require_otlp(ends, rows, selection, "place")
