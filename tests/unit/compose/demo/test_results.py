"""The table of results: every wrong number makes it disagree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from tallystream_aggregator.verify.check import Difference, Outcome
from tallystream_cli.demo.journal import Line
from tallystream_cli.demo.results import Duplicates, Found, differences, exact, rows
from tallystream_dashboards.data.compare import Bounds

if TYPE_CHECKING:
    from tallystream_cli.demo.sums import Key, Values

PROCESSED: Key = ("flights", "flights.processed", "counter", ())
DELAY: Key = ("flights", "flights.delay", "histogram", ())
BATCH: Key = ("flights", "flights.batch", "timer", ())
TAKEN: Key = ("flights", "flights.processed.taken", "counter", ())
PLACE = (("partition", "0"), ("topic", "flights"))
AT: Key = ("flights", "flights.processed.position", "position", PLACE)
TAKEN_AT: Key = ("flights", "flights.processed.taken.position", "position", PLACE)
SUMS: dict[Key, Values] = {
    PROCESSED: {"count": 110},
    TAKEN: {"count": 130},
    DELAY: {"count": 90, "sum": 450.0, "min": -5, "max": 60},
    BATCH: {"count": 4, "sum": 0.25, "min": 0.01, "max": 0.1},
    AT: {"start": 0, "position": 100},
    TAKEN_AT: {"start": 0, "position": 100},
}
FEWER_TAKEN: dict[Key, Values] = {**SUMS, TAKEN: {"count": 119}}
NOTHING_TAKEN = {key: row for key, row in SUMS.items() if key != TAKEN}
# After 40 records a kill during the work on 20, of which 10 are done; after 70 a kill that comes after the count of 10.
SPANS = [[(0, 0, 40)], [(0, 40, 50)], [(0, 40, 70)], [(0, 70, 80)], [(0, 70, 100)]]
COUNTED = [Line("counted", SPANS[n], delays, 5 * delays) for n, delays in ((0, 40), (2, 20), (3, 10), (4, 20))]
LINES = [*(Line("processed", one) for one in SPANS), *COUNTED]
KILLS = [
    Duplicates(),
    Duplicates(10, 0, Bounds(0, 20)),
    Duplicates(20, 10, Bounds(10, 30)),
    Duplicates(20, 10, Bounds(10, 30)),
]
CONSISTENT = Found(100, LINES, KILLS, SUMS, 0, SUMS, Outcome(sums=6, letters=0))


def test_consistent_numbers_are_exact() -> None:
    """If the numbers of all sources agree, so does the table."""
    table = rows(CONSISTENT)
    assert exact(table)
    assert table[0].value == "100"
    assert [(row.value, row.against, row.other) for row in table if row.what.startswith("processed twice")] == [
        ("0", "by the sums: exact", "0"),
        ("10", "by the sums: a bound", "0 to 20"),
        ("10", "by the sums: exact", "10"),
        ("0", "by the sums: exact", "0"),
        ("20", "by the sums: a bound", "10 to 30"),
    ]


def lines(number: int, **changes: Any) -> list[Line]:
    """Return the lines with one of them changed."""
    return [msgspec.structs.replace(one, **changes) if n == number else one for n, one in enumerate(LINES)]


def kills(number: int, kill: Duplicates) -> list[Duplicates]:
    """Return the kills with one of them changed, and with it what is found after it."""
    return [*KILLS[:number], kill, *KILLS[number + 1 :]]


@pytest.mark.parametrize(
    "wrong",
    [
        {"sent": 101},
        {"lines": LINES[:-1]},
        {"lines": lines(5, delays=41)},
        {"lines": lines(5, delay_sum=201)},
        {"lines": lines(8, spans=[(0, 70, 99)])},
        {"lines": lines(8, spans=[(0, 69, 99)])},
        {"lines": lines(1, spans=[(0, 40, 61)])},
        {"kills": kills(0, Duplicates(1, 0, Bounds(0, 0)))},
        {"kills": kills(1, Duplicates(21, 0, Bounds(0, 20)))},
        {"kills": kills(1, Duplicates(10, 0, Bounds(0, None)))},
        {"kills": kills(2, Duplicates(20, 10, Bounds(9, 30)))},
        {"kills": kills(2, Duplicates(20, 9, Bounds(10, 30)))},
        {"kills": kills(3, Duplicates(20, 10, Bounds(11, 31)))},
        {"decreases": 1},
        {"verified": Outcome(sums=6, letters=1)},
        {"verified": Outcome(sums=6, differences=[Difference(None, "count", 1, 2, None)])},
        {"verified": Outcome()},
        {"sums": {**SUMS, PROCESSED: {"count": 109}}},
        {"sums": {**SUMS, BATCH: {**SUMS[BATCH], "count": 5}}},
        {"sums": FEWER_TAKEN, "store": FEWER_TAKEN},
        {"sums": NOTHING_TAKEN, "store": NOTHING_TAKEN},
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


@pytest.mark.parametrize("without", ["a record counted twice", "another one processed twice"])
def test_a_run_in_which_a_kill_had_no_effect_fails(without: str) -> None:
    """If a kill did not come in its window, the table is not exact although all numbers agree."""
    values: dict[Key, Values] = {**SUMS}
    if without == "a record counted twice":
        effects = [LINES[n] for n in (0, 1, 2, 4, 5, 6, 8)]
        found = [Duplicates(), *[Duplicates(10, 0, Bounds(0, 20))] * 3]
        values |= {PROCESSED: {"count": 100}, TAKEN: {"count": 120}, BATCH: {**SUMS[BATCH], "count": 3}}
        values[DELAY] = {**SUMS[DELAY], "count": 80, "sum": 400.0}
    else:
        effects = [line for n, line in enumerate(LINES) if n != 1]
        found = [Duplicates(), Duplicates(), *[Duplicates(10, 10, Bounds(10, 10))] * 2]
        values[TAKEN] = {"count": 110}
    once = CONSISTENT._replace(sums=values, store=values, lines=effects, kills=found)
    assert [row.what for row in rows(once) if row.agrees is False] == ["counted twice"]


def test_differences_name_metric_tags_field_and_both_values() -> None:
    """Each difference is described completely."""
    other: dict[Key, Values] = {**SUMS, AT: {"start": 0, "position": 99}}
    assert differences(SUMS, other) == [
        "flights.processed.position{'partition': '0', 'topic': 'flights'}.position: 100 and 99"
    ]
