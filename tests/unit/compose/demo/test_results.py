"""The table of results: every wrong number makes it disagree."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from tallystream_aggregator.verify.check import Difference, Outcome
from tallystream_cli.demo.journal import Batch, Line
from tallystream_cli.demo.results import Found, differences, exact, rows

if TYPE_CHECKING:
    from tallystream_cli.demo.sums import Key, Values

PROCESSED: Key = ("flights", "flights.processed", "counter", ())
DELAY: Key = ("flights", "flights.delay", "histogram", ())
BATCH: Key = ("flights", "flights.batch", "timer", ())
AT: Key = ("flights", "flights.processed.position", "position", (("partition", "0"), ("topic", "flights")))
SUMS: dict[Key, Values] = {
    PROCESSED: {"count": 110},
    DELAY: {"count": 90, "sum": 450.0, "min": -5, "max": 60},
    BATCH: {"count": 3, "sum": 0.25, "min": 0.01, "max": 0.1},
    AT: {"start": 0, "position": 100},
}
BATCHES = [
    Batch(Line("batch", 1, 60, 300, [(0, 0, 70)]), {"acknowledged", "committed"}),
    Batch(Line("batch", 2, 10, 50, [(0, 70, 80)]), {"acknowledged", "hold"}),
    Batch(Line("batch", 3, 20, 100, [(0, 70, 100)]), {"acknowledged", "committed"}),
]
CONSISTENT = Found(100, BATCHES, SUMS, 0, SUMS, Outcome(sums=4, letters=0))


def test_consistent_numbers_are_exact() -> None:
    """If the numbers of all sources agree, so does the table."""
    table = rows(CONSISTENT)
    assert exact(table)
    assert table[0].value == "100"
    assert [row.value for row in table if row.what == "processed twice, by the sums"] == ["10"]


def batches(number: int, **changes: Any) -> list[Batch]:
    """Return the batches with a changed line of one of them."""
    return [
        dataclasses.replace(one, line=msgspec.structs.replace(one.line, **changes)) if one.line.n == number else one
        for one in BATCHES
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        {"sent": 101},
        {"batches": BATCHES[:2]},
        {"batches": batches(1, delays=61)},
        {"batches": batches(1, delay_sum=301)},
        {"batches": batches(3, spans=[(0, 70, 99)])},
        {"batches": batches(3, spans=[(0, 69, 99)])},
        {"batches": [dataclasses.replace(one, marks=one.marks - {"hold"}) for one in BATCHES]},
        {"decreases": 1},
        {"verified": Outcome(sums=4, letters=1)},
        {"verified": Outcome(sums=4, differences=[Difference(None, "count", 1, 2, None)])},
        {"verified": Outcome()},
        {"sums": {**SUMS, PROCESSED: {"count": 109}}},
        {"sums": {**SUMS, BATCH: {**SUMS[BATCH], "count": 4}}},
        {"sums": {**SUMS, AT: {"start": 0, "position": 101}}},
        {"store": {**SUMS, DELAY: {**SUMS[DELAY], "sum": 450.5}}},
        {"store": {key: row for key, row in SUMS.items() if key != AT}},
        {"sums": {}, "store": {}},
    ],
    ids=list,  # the names of what is wrong: sets have no order that two processes share
)
def test_each_wrong_number_is_detected(wrong: dict[str, Any]) -> None:
    """With one number wrong by one, or missing, the table is not exact."""
    assert not exact(rows(CONSISTENT._replace(**wrong)))


def test_a_run_without_records_processed_twice_fails() -> None:
    """If the kill had no effect, the table is not exact although all numbers agree."""
    values: dict[Key, Values] = {**SUMS, PROCESSED: {"count": 100}, BATCH: {**SUMS[BATCH], "count": 2}}
    values[DELAY] = {**SUMS[DELAY], "count": 80, "sum": 400.0}
    once = CONSISTENT._replace(sums=values, store=values, batches=[BATCHES[0], BATCHES[2]])
    assert [row.what for row in rows(once) if row.agrees is False] == [
        "in the batch that app-2 held when it was killed"
    ]


def test_differences_name_metric_tags_field_and_both_values() -> None:
    """Each difference is described completely."""
    other: dict[Key, Values] = {**SUMS, AT: {"start": 0, "position": 99}}
    assert differences(SUMS, other) == [
        "flights.processed.position{'partition': '0', 'topic': 'flights'}.position: 100 and 99"
    ]
