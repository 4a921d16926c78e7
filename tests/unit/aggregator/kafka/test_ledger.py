"""The rows of the ledger."""

from __future__ import annotations

import logging

import pytest

from support.malformed import UNDECODABLE
from tallystream_aggregator.kafka import ledger
from tallystream_aggregator.kafka.ledger import LedgerRow

ONE, TWO = (LedgerRow(generation=n, ts=1, shards=1, forget_after_ms=2, max_table_bytes=3) for n in (1, 2))


@pytest.mark.parametrize("value", [None, *UNDECODABLE.values()], ids=["none", *UNDECODABLE])
def test_a_record_that_is_not_a_row_is_skipped_with_a_warning(
    value: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    """The rows around it are read."""
    with caplog.at_level(logging.WARNING):
        assert list(ledger.rows([ledger.encode(ONE), value, ledger.encode(TWO)])) == [ONE, TWO]
    assert "a record of the ledger is not a row and is skipped" in caplog.text
