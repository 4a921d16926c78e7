"""The rows of the ledger."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from support.undecodable import UNDECODABLE
from tallystream_aggregator.jobs.aggregate import start_position
from tallystream_aggregator.kafka import ledger
from tallystream_aggregator.kafka.ledger import LedgerRow
from tallystream_aggregator.kafka.reader import Read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

END = {"metrics": {"0": 7}}
OPENED = LedgerRow(kind="opened", generation=3, ts=1)
EPOCH = LedgerRow(kind="epoch", generation=3, batch=1, ts=2, end=END)


def topic_with(*values: bytes | None) -> Callable[..., Iterator[Read]]:
    """Return a function that reads a topic with these values."""
    return lambda *_args, **_options: (Read(b"k", value, offset) for offset, value in enumerate(values))


def test_a_row_is_decoded_as_it_was_encoded() -> None:
    """The JSON has `v`."""
    assert ledger.decode(ledger.encode(EPOCH)) == EPOCH
    assert json.loads(ledger.encode(OPENED))["v"] == 1


@pytest.mark.parametrize("value", [None, *UNDECODABLE.values()], ids=["none", *UNDECODABLE])
def test_a_record_that_is_not_a_row_is_skipped_with_a_warning(
    value: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    """The rows around it are read."""
    with caplog.at_level(logging.WARNING):
        assert list(ledger.rows([ledger.encode(OPENED), value, ledger.encode(EPOCH)])) == [OPENED, EPOCH]
    assert "a record of the ledger is not a row and is skipped" in caplog.text


@pytest.mark.parametrize("value", UNDECODABLE.values(), ids=UNDECODABLE)
def test_a_record_that_is_not_a_row_stops_no_start(monkeypatch: pytest.MonkeyPatch, value: bytes) -> None:
    """A start position of the ledger is that of the row after it."""
    monkeypatch.setattr(ledger, "read_topic", topic_with(value, ledger.encode(replace(EPOCH, start=END))))
    assert start_position.begin_of(ledger.read_rows("metrics-ledger", {}, last=None), 2) == END


@pytest.mark.parametrize("starts", [ledger.TAIL // 2, ledger.TAIL, 10 * ledger.TAIL])
def test_the_last_epoch_is_found_before_many_failed_starts(monkeypatch: pytest.MonkeyPatch, starts: int) -> None:
    """Each start writes a row. Its transaction has a marker, which takes an offset, too."""
    values = [ledger.encode(row) for row in (OPENED, replace(EPOCH, otlp=["a"]), *[OPENED] * starts)]

    def read(*_: object, last: int | None, **_options: object) -> Iterator[Read]:
        records = [Read(b"k", value, 2 * number) for number, value in enumerate(values)]
        first = 0 if last is None else 2 * len(values) - last
        return (record for record in records if record.offset >= first)

    monkeypatch.setattr(ledger, "read_topic", read)
    assert ledger.otlp_topics(ledger.read_rows("metrics-ledger", {})) == ["a"]
    assert len(ledger.read_rows("metrics-ledger", {})) == 2 + starts


def test_the_highest_generation_is_that_of_any_row() -> None:
    """Without a row there is none."""
    assert ledger.highest_generation([OPENED, LedgerRow(kind="opened", generation=2, ts=3)]) == 3
    assert ledger.highest_generation([]) is None


def test_the_topics_of_otlp_metrics_are_those_of_the_last_epoch() -> None:
    """An older epoch and a row "opened" say nothing. Without an epoch they are unknown."""
    later = replace(EPOCH, batch=2, otlp=["a", "b"])
    assert ledger.otlp_topics([replace(EPOCH, otlp=["a"]), later, OPENED]) == ["a", "b"]
    assert ledger.otlp_topics([EPOCH]) == []
    assert ledger.otlp_topics([OPENED]) is None
    assert ledger.decode(ledger.encode(later)) == later
