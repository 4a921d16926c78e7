"""The demonstration: its events, journals, sums, results and output."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystream.errors import ConfigError
from tallystream_aggregator import sums
from tallystream_aggregator.verify.check import Difference, Outcome
from tallystream_cli.demo import journal
from tallystream_cli.demo.journal import Line, Span
from tallystream_cli.demo.results import Duplicates, Found, Row, differences, exact, rows
from tallystream_cli.demo.run import DemoSettings, Display, as_dict, as_text
from tallystream_cli.demo.sums import Key, SumsReader, Values, counted
from tallystream_dashboards.data.bounds import Bounds
from tallystream_dashboards.data.compare import Counted, Place, Range


def _text(*lines: Line) -> bytes:
    return b"".join(line.text() for line in lines)


def _processed(*spans: Span) -> Line:
    return Line("processed", list(spans))


def test_an_incomplete_last_line_is_ignored() -> None:
    """A reader can read the journal during a write."""
    text = _text(_processed((0, 0, 10)))
    assert journal.parse(text[:-5]) == []
    assert journal.records(journal.parse(text)) == 10


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(1, 10))))
def test_different_counts_each_offset_once(ranges: list[tuple[int, int, int]]) -> None:
    """For ranges that overlap in any way, `different` is the size of the set of offsets, and `ends` their ends."""
    lines = journal.parse(_text(*(_processed((partition, first, first + size)) for partition, first, size in ranges)))
    expected = {(partition, offset) for partition, first, size in ranges for offset in range(first, first + size)}
    assert journal.different(lines) == len(expected)
    assert journal.repeated(lines) == sum(size for _, _, size in ranges) - len(expected)
    assert {(partition, end - 1) for partition, end in journal.ends(lines).items()} == {
        max(one for one in expected if one[0] == partition) for partition, _ in expected
    }


@pytest.fixture
def reader() -> Iterator[SumsReader]:
    """A reader that no broker answers."""
    reader = SumsReader("127.0.0.1:1", "metrics-agg")
    yield reader
    reader.close()


def test_a_decrease_is_counted(reader: SumsReader) -> None:
    """A later row has a lower count."""
    for count in (5, 9, 8, 12):
        reader.add(sums.Sum(app="flights", name="flights.processed", type="counter", count=count, ts=0))
    assert (reader.count(), reader.decreases) == (12, 1)


def test_what_a_counter_counted(reader: SumsReader) -> None:
    """It has its own count, and the offsets of its own positions."""
    for name, end in (("in", 7), ("in.taken", 9)):
        at = {"topic": "flights", "partition": "0"}
        reader.add(sums.Sum(app="a", name=name, type="counter", count=end, ts=0))
        reader.add(sums.Sum(app="a", name=f"{name}.position", type="position", tags=at, start=2, position=end, ts=0))
    assert counted(reader.values(), "in") == Counted(7, {Place("flights", "0"): Range(2, 7)})


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


def test_a_folder_that_is_not_empty_is_rejected(tmp_path: Path) -> None:
    """The records of an earlier run would be counted too."""
    (tmp_path / "broker").mkdir()
    with pytest.raises(ConfigError, match="empty folder"):
        DemoSettings(data=tmp_path)
    with pytest.raises(ConfigError, match="File name too long"):
        DemoSettings(data=tmp_path / ("n" * 300))


def test_the_display_prints_lines() -> None:
    """Steps are numbered. Counts are printed at most every five seconds, and only if they changed."""
    now = [0.0]
    out = io.StringIO()
    display = Display(out, clock=lambda: now[0])
    display.step("Start")
    display.step("Send")
    for number, at in ((10, 1.0), (20, 6.0), (20, 12.0), (30, 13.0)):
        now[0] = at
        display.count(sent=number)
    assert out.getvalue().splitlines() == ["1. Start", "2. Send", "   sent: 20", "   sent: 30"]


@pytest.mark.parametrize("closed", ["terminal", "pipe"])
def test_a_closed_output_is_no_error(closed: str) -> None:
    """The demonstration, and the orderly stop at its end, go on after its terminal or its pipe was closed."""
    other_end, descriptor = os.openpty() if closed == "terminal" else os.pipe()
    os.close(other_end)
    out = os.fdopen(descriptor, "w", encoding="utf-8")
    display = Display(out)
    display.say("Stopping.")
    display.say("Stopped.")
    out.close()  # it writes what is buffered


def test_the_table() -> None:
    """The object has every row, and whether all rows agree. So does the text."""
    table = [Row("events sent", "7"), Row("processed", "7", "by the journals", "8", False)]
    assert as_dict(table, 2.04) == {
        "exact": False,
        "rows": [
            {"what": "events sent", "value": "7", "against": "", "other": "", "agrees": None},
            {"what": "processed", "value": "7", "against": "by the journals", "other": "8", "agrees": False},
        ],
        "seconds": 2.0,
    }
    assert as_text(table, 2.04).splitlines() == [
        "what         value  compared with    value  agrees",
        "events sent      7",
        "processed        7  by the journals      8  NO",
        "",
        "Agreement: NOT exact, in 2.0 s.",
    ]
