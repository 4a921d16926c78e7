"""The journal: records, different ones, those that are there again, and the ends of their partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from tallystream_cli.demo import journal
from tallystream_cli.demo.journal import Line

if TYPE_CHECKING:
    from tallystream_cli.demo.journal import Span


def _text(*lines: Line) -> bytes:
    return b"".join(line.text() for line in lines)


def _processed(*spans: Span) -> Line:
    return Line("processed", list(spans))


def test_records_that_two_processes_process_are_repeated() -> None:
    """`repeated` is the difference of all records and the different ones."""
    both = journal.parse(_text(_processed((0, 0, 10), (1, 0, 5)))) + journal.parse(_text(_processed((0, 4, 12))))
    assert (journal.records(both), journal.different(both), journal.repeated(both)) == (23, 17, 6)


def test_lines_are_chosen_by_their_kind() -> None:
    """What was processed and what was counted are different lines, in the order in which they were written."""
    lines = [_processed((0, 0, 10)), Line("counted", [(0, 0, 10)], 9, 45), Line("committed"), _processed((0, 10, 15))]
    parsed = journal.parse(_text(*lines))
    assert parsed == lines
    assert journal.of_kind(parsed, "processed") == [lines[0], lines[3]]
    assert journal.of_kind(parsed, "counted") == [lines[1]]


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
