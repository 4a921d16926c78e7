"""The table of results: every wrong number makes it disagree."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from tallystream_aggregator.verify.check import Difference, Outcome
from tallystream_cli.demo.results import Results, differences, exact, rows

if TYPE_CHECKING:
    from tallystream_cli.demo.sums import Key, Values

PROCESSED: Key = ("flights", "flights.processed", "counter", ())
DELAY: Key = ("flights", "flights.delay", "histogram", ())
BATCH: Key = ("flights", "flights.batch", "timer", ())
AT: Key = ("flights", "flights.processed.position", "position", (("partition", "0"), ("topic", "flights")))
SUMS: dict[Key, Values] = {
    PROCESSED: {"count": 110},
    DELAY: {"count": 90, "sum": 450.0, "min": -5, "max": 60},
    BATCH: {"count": 11, "sum": 0.25, "min": 0.01, "max": 0.1},
    AT: {"start": 0, "position": 100},
}
CONSISTENT = Results(
    sent=100,
    processed=110,
    journal_processed=110,
    journal_duplicates=10,
    journal_covered=100,
    journal_delays=90,
    journal_delay_sum=450,
    journal_batches=11,
    held=10,
    covered=100,
    decreases=0,
    acknowledged=110,
    verified=Outcome(sums=4, letters=0),
    sums=SUMS,
    store=SUMS,
)


def test_consistent_numbers_are_exact() -> None:
    """If the numbers of all sources agree, so does the table."""
    table = rows(CONSISTENT)
    assert exact(table)
    assert table[0].value == "100"
    assert [row.value for row in table if row.what == "processed twice, by the sums"] == ["10"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"sent": 101},
        {"processed": 109},
        {"journal_processed": 111},
        {"journal_duplicates": 9},
        {"journal_covered": 99},
        {"journal_delays": 91},
        {"journal_delay_sum": 451},
        {"journal_batches": 12},
        {"held": 0},
        {"held": 11},
        {"covered": 101},
        {"decreases": 1},
        {"acknowledged": 111},
        {"verified": Outcome(sums=4, letters=1)},
        {"verified": Outcome(sums=4, differences=[Difference(None, "count", 1, 2, None)])},
        {"verified": Outcome()},
        {"sums": {**SUMS, PROCESSED: {"count": 111}}},
        {"store": {**SUMS, DELAY: {**SUMS[DELAY], "sum": 450.5}}},
        {"store": {key: row for key, row in SUMS.items() if key != AT}},
        {"sums": {}, "store": {}},
    ],
    ids=str,
)
def test_each_wrong_number_is_detected(wrong: dict[str, Any]) -> None:
    """With one number wrong by one, or missing, the table is not exact."""
    assert not exact(rows(dataclasses.replace(CONSISTENT, **wrong)))


def test_a_run_without_records_processed_twice_fails() -> None:
    """If the kill had no effect, the table is not exact although all numbers agree."""
    values: dict[Key, Values] = {**SUMS, PROCESSED: {"count": 100}}
    once = dataclasses.replace(
        CONSISTENT,
        processed=100,
        journal_processed=100,
        journal_duplicates=0,
        held=0,
        acknowledged=100,
        sums=values,
        store=values,
    )
    assert [row.what for row in rows(once) if row.agrees is False] == [
        "in the batch that app-2 held when it was killed"
    ]


def test_differences_name_metric_tags_field_and_both_values() -> None:
    """Each difference is described completely."""
    other: dict[Key, Values] = {**SUMS, AT: {"start": 0, "position": 99}}
    assert differences(SUMS, other) == [
        "flights.processed.position{'partition': '0', 'topic': 'flights'}.position: 100 and 99"
    ]
