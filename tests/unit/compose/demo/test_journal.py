"""The journal: records processed, processed twice, acknowledged and held."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystream_cli.demo import journal
from tallystream_cli.demo.journal import JournalError, JournalWriter, Line, Span

if TYPE_CHECKING:
    from pathlib import Path


def _text(*lines: Line) -> bytes:
    return b"".join(msgspec.json.encode(line) + b"\n" for line in lines)


def _batch(n: int, *spans: Span) -> Line:
    return Line("batch", n, sum(end - first for _, first, end in spans), spans=list(spans))


def test_records_that_two_processes_process_are_duplicates() -> None:
    """`duplicates` is the difference of all processed records and the different ones."""
    first = journal.parse(_text(Line("life"), _batch(1, (0, 0, 10), (1, 0, 5))))
    second = journal.parse(_text(Line("life"), _batch(1, (0, 4, 12))))
    both = first + second
    assert (journal.processed(both), journal.covered(both), journal.duplicates(both)) == (23, 17, 6)


def test_batch_numbers_start_again_in_each_life() -> None:
    """An acknowledgement, hold or commit applies to the batch of the same life."""
    text = _text(
        Line("life"),
        _batch(1, (0, 0, 10)),
        Line("acknowledged", 1),
        Line("hold", 1),
        Line("life"),
        _batch(1, (0, 10, 13)),
        Line("acknowledged", 1),
        Line("committed", 1),
        _batch(2, (0, 13, 20)),
        Line("end"),
    )
    batches = journal.parse(text)
    assert [batch.life for batch in batches] == [1, 2, 2]
    assert [batch.committed for batch in batches] == [False, True, False]
    assert journal.acknowledged(batches) == 13
    assert journal.held(batches) == 10


def test_an_incomplete_last_line_is_ignored() -> None:
    """A reader can read the journal during a write."""
    text = _text(Line("life"), _batch(1, (0, 0, 10)))
    assert journal.processed(journal.parse(text[:-5])) == 0
    assert journal.processed(journal.parse(text)) == 10


def test_a_count_that_contradicts_the_offsets_is_an_error() -> None:
    """The error names the batch, its life and the count."""
    with pytest.raises(JournalError, match="the count 9 of batch 1 of life 1"):
        journal.parse(_text(Line("life"), Line("batch", 1, 9, spans=[(0, 0, 10)])))


def test_a_line_about_an_unknown_batch_is_an_error() -> None:
    """A batch that was not processed can't be acknowledged."""
    with pytest.raises(JournalError, match="acknowledged of batch 3"):
        journal.parse(_text(Line("life"), Line("acknowledged", 3)))


def test_a_second_process_appends(tmp_path: Path) -> None:
    """A journal has the batches of all processes of an instance."""
    path = tmp_path / "app-1.journal"
    for life in (1, 2):
        with JournalWriter(path) as writer:
            writer.write(Line("life"))
            writer.write(Line("batch", 1, 2, 1, -7, [(3, life, life + 2)]))
    batches = journal.parse(path.read_bytes())
    assert [(batch.life, batch.line.delay_sum, batch.line.spans) for batch in batches] == [
        (1, -7, [(3, 1, 3)]),
        (2, -7, [(3, 2, 4)]),
    ]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(1, 10))))
def test_covered_counts_each_offset_once(ranges: list[tuple[int, int, int]]) -> None:
    """For ranges that overlap in any way, `covered` is the size of the set of their offsets."""
    lines = [_batch(n, (partition, first, first + size)) for n, (partition, first, size) in enumerate(ranges, 1)]
    batches = journal.parse(_text(Line("life"), *lines))
    expected = {(partition, offset) for partition, first, size in ranges for offset in range(first, first + size)}
    assert journal.covered(batches) == len(expected)
    assert journal.duplicates(batches) == sum(size for _, _, size in ranges) - len(expected)
