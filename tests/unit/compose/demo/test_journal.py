"""The journals: what was processed, what was processed twice, what was acknowledged, by offsets alone."""

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


def test_a_batch_that_another_process_repeats_is_counted_twice() -> None:
    """Processed is everything, covered the different offsets, twice what is left."""
    first = journal.parse(_text(Line("life"), _batch(1, (0, 0, 10), (1, 0, 5))))
    second = journal.parse(_text(Line("life"), _batch(1, (0, 4, 12))))
    both = first + second
    assert (journal.processed(both), journal.covered(both), journal.duplicates(both)) == (23, 17, 6)


def test_marks_belong_to_the_batch_of_their_own_life() -> None:
    """Batch numbers begin again in each life, and a mark is of the life in which it stands."""
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


def test_a_line_that_is_still_being_written_waits() -> None:
    """A reader that comes in the middle of a write sees what was there before."""
    text = _text(Line("life"), _batch(1, (0, 0, 10)))
    assert journal.processed(journal.parse(text[:-5])) == 0
    assert journal.processed(journal.parse(text)) == 10


def test_a_count_that_its_offsets_do_not_have_is_an_error() -> None:
    """The two ways in which a batch says how large it is must agree."""
    with pytest.raises(JournalError, match="batch 1 of life 1 counts 9"):
        journal.parse(_text(Line("life"), Line("batch", 1, 9, spans=[(0, 0, 10)])))


def test_a_mark_of_an_unknown_batch_is_an_error() -> None:
    """What was acknowledged must have been processed."""
    with pytest.raises(JournalError, match="acknowledged of batch 3"):
        journal.parse(_text(Line("life"), Line("acknowledged", 3)))


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    """A second process appends to the journal of the first."""
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
def test_the_union_of_ranges_is_that_of_sets(ranges: list[tuple[int, int, int]]) -> None:
    """However the ranges overlap, `covered` counts each offset once."""
    lines = [_batch(n, (partition, first, first + size)) for n, (partition, first, size) in enumerate(ranges, 1)]
    batches = journal.parse(_text(Line("life"), *lines))
    wanted = {(partition, offset) for partition, first, size in ranges for offset in range(first, first + size)}
    assert journal.covered(batches) == len(wanted)
    assert journal.duplicates(batches) == sum(size for _, _, size in ranges) - len(wanted)
