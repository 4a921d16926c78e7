"""The journal: records processed, processed twice, acknowledged and held."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from tallystream_cli.demo import journal
from tallystream_cli.demo.journal import Line

if TYPE_CHECKING:
    from tallystream_cli.demo.journal import Kind, Span


def _text(*lines: Line) -> bytes:
    return b"".join(line.text() for line in lines)


def _batch(n: int, *spans: Span) -> Line:
    return Line("batch", n, spans=list(spans))


def test_records_that_two_processes_process_are_duplicates() -> None:
    """`duplicates` is the difference of all processed records and the different ones."""
    both = journal.parse(_text(_batch(1, (0, 0, 10), (1, 0, 5)))) + journal.parse(_text(_batch(1, (0, 4, 12))))
    assert (journal.processed(both), journal.covered(both), journal.duplicates(both)) == (23, 17, 6)


def test_marks_are_of_their_batch() -> None:
    """An acknowledgement, hold or commit applies to the batch of its number."""
    marks: list[tuple[Kind, int]] = [("acknowledged", 1), ("hold", 1), ("acknowledged", 2), ("committed", 2)]
    batches = journal.parse(
        _text(_batch(1, (0, 0, 10)), _batch(2, (0, 10, 13)), *(Line(*mark) for mark in marks), _batch(3, (0, 13, 20)))
    )
    assert ["committed" in batch.marks for batch in batches] == [False, True, False]
    assert journal.acknowledged(batches) == 13
    assert journal.held(batches) == 10


def test_an_incomplete_last_line_is_ignored() -> None:
    """A reader can read the journal during a write."""
    text = _text(_batch(1, (0, 0, 10)))
    assert journal.processed(journal.parse(text[:-5])) == 0
    assert journal.processed(journal.parse(text)) == 10


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(1, 10))))
def test_covered_counts_each_offset_once(ranges: list[tuple[int, int, int]]) -> None:
    """For ranges that overlap in any way, `covered` is the size of the set of their offsets."""
    lines = [_batch(n, (partition, first, first + size)) for n, (partition, first, size) in enumerate(ranges, 1)]
    batches = journal.parse(_text(*lines))
    expected = {(partition, offset) for partition, first, size in ranges for offset in range(first, first + size)}
    assert journal.covered(batches) == len(expected)
    assert journal.duplicates(batches) == sum(size for _, _, size in ranges) - len(expected)
