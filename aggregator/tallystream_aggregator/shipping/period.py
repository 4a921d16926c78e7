"""Which batches a period has, by the ledger, and which rows of `metrics-agg` are theirs. Pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tallystream.errors import ConfigError
from tallystream_aggregator.kafka.ledger import QUERY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tallystream_aggregator.kafka.ledger import LedgerRow
    from tallystream_aggregator.sums import Sum

Writer = tuple[int, int]
"""(epoch, batch)"""


class Period(NamedTuple):
    """Whole batches: the first and the last, and how many the ledger has of them."""

    first: Writer
    last: Writer
    batches: int


def period(rows: Iterable[LedgerRow], from_ms: int, to_ms: int) -> Period:
    """Return the batches that were processed from `from_ms` on and before `to_ms`, in epoch ms.

    Raises:
        ConfigError: there is none.
    """
    found = sorted(
        {
            (row.epoch, row.batch)
            for row in rows
            if row.query == QUERY and row.kind == "batch" and from_ms <= row.ts < to_ms
        }
    )
    if not found:
        raise ConfigError("--from", from_ms, "the ledger has no batch from then on and before --to: widen the period")
    return Period(found[0], found[-1], len(found))


def chosen(rows: Iterable[Sum], wanted: Period, bound: int) -> Iterator[Sum]:
    """Yield, of the rows of `metrics-agg` in offset order, those that a current writer wrote in the period.

    Batches between the first and the last that read nothing, and so have no row in the ledger, are among them: a life
    may have fallen silent in one. A row whose epoch is below one before it is a replaced writer's, and one whose epoch
    is above `bound`, the highest of the ledger, is no aggregator's: neither was shipped.
    """
    highest = 0
    for row in rows:
        if not highest <= row.epoch <= bound:
            continue
        highest = row.epoch
        if wanted.first <= (row.epoch, row.batch) <= wanted.last:
            yield row
