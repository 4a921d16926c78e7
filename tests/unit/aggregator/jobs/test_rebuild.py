"""What `rebuild` takes from the ledger. The command itself is in tests/integration/test_rebuild.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from support.simulation.direct import Direct
from support.simulation.system import TOPICS
from tallystream.errors import TallystreamError
from tallystream_aggregator.jobs import rebuild
from tallystream_aggregator.kafka import ledger
from tallystream_aggregator.kafka.ledger import LedgerRow
from tallystream_aggregator.kafka.topics import Topics
from tallystream_aggregator.stream.broker import Place
from tallystream_aggregator.table.limits import TableSettings

if TYPE_CHECKING:
    from tallystream_aggregator.stream.broker import Broker

OPENED = LedgerRow(
    generation=3,
    ts=1,
    start={"metrics": {"0": 7}},
    shards=2,
    forget_after_ms=5,
    max_table_bytes=6,
    otlp=["otlp"],
)


def test_the_settings_are_those_of_the_last_start() -> None:
    """The row that a rebuild writes has these settings, and begins no table."""
    found = rebuild._opened(ledger_with(replace(OPENED, generation=2, max_table_bytes=9), OPENED), Topics())
    assert found == replace(OPENED, start={})
    wanted = TableSettings(forget_after_ms=5, max_table_bytes=6, otlp_topics=("otlp",))
    assert rebuild._table_settings(found) == wanted


def test_a_ledger_without_a_start_is_an_error_with_the_remedy() -> None:
    """With other settings than the aggregator's, records might be refused that are counted, or the other way round."""
    with pytest.raises(TallystreamError, match=r"no start of an aggregator.*start the aggregator, stop it, and run"):
        rebuild._opened(ledger_with(), Topics())


def ledger_with(*rows: LedgerRow) -> Broker:
    """Return a broker whose ledger has these rows."""
    direct = Direct()
    direct.cluster.create(TOPICS.ledger, 1)
    for row in rows:
        direct.cluster.append(Place(TOPICS.ledger, 0), b"", ledger.encode(row))
    broker: Broker = direct.broker
    return broker
