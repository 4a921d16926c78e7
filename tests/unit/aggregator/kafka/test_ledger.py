"""The rows of the ledger."""

from __future__ import annotations

import logging

import pytest

from support.undecodable import UNDECODABLE
from tallystream_aggregator.kafka import ledger
from tallystream_aggregator.kafka.ledger import LedgerRow

END = {"metrics": {"0": 7}}
OPENED = LedgerRow(kind="opened", generation=3, ts=1)
EPOCH = LedgerRow(kind="epoch", generation=3, batch=1, ts=2, end=END)


@pytest.mark.parametrize("value", [None, *UNDECODABLE.values()], ids=["none", *UNDECODABLE])
def test_a_record_that_is_not_a_row_is_skipped_with_a_warning(
    value: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    """The rows around it are read."""
    with caplog.at_level(logging.WARNING):
        assert list(ledger.rows([ledger.encode(OPENED), value, ledger.encode(EPOCH)])) == [OPENED, EPOCH]
    assert "a record of the ledger is not a row and is skipped" in caplog.text
