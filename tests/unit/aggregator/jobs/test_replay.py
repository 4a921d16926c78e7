"""The rows of `metrics-agg` of a past period."""

from __future__ import annotations

import pytest

from tallystream.errors import ConfigError
from tallystream_aggregator.jobs.replay import Period, chosen, period
from tallystream_aggregator.kafka.ledger import QUERY, LedgerRow
from tallystream_aggregator.sums import Sum


def batch(number: int, ts: int, epoch: int = 1, query: str = QUERY) -> LedgerRow:
    """Return a ledger row of a finished batch."""
    return LedgerRow(kind="batch", query=query, epoch=epoch, batch=number, ts=ts)


def row(epoch: int, number: int) -> Sum:
    """Return a sum by its writer."""
    return Sum(app="shop", name="n", type="counter", count=1, ts=1, epoch=epoch, batch=number)


def test_a_period_has_the_batches_that_were_processed_in_it() -> None:
    """Its start is inclusive, its end exclusive. Other queries and repeated rows do not count."""
    rows = [batch(1, 10), batch(2, 20), batch(2, 20), batch(3, 30), batch(9, 20, query="other")]
    rows.append(LedgerRow(kind="opened", query=QUERY, epoch=7, ts=20))
    assert period(rows, 20, 30) == Period((1, 2), (1, 2), 1)
    assert period(rows, 10, 31) == Period((1, 1), (1, 3), 3)
    with pytest.raises(ConfigError, match="--from: 31"):
        period(rows, 31, 40)


def test_rows_between_the_first_and_the_last_batch_are_chosen() -> None:
    """These include batches without records, across a takeover, but not rows of a replaced or unknown writer."""
    rows = [row(1, 1), row(1, 2), row(2**62, 2), row(1, 3), row(2, 3), row(1, 4), row(2, 4), row(2, 5)]
    found = [(one.epoch, one.batch) for one in chosen(rows, Period((1, 2), (2, 4), 2), 2)]
    assert found == [(1, 2), (1, 3), (2, 3), (2, 4)]
