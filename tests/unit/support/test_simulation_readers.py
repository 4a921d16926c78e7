"""The readers see what Kafka shows, and each check finds the violation that is planted for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.simulation.broker import SimulatedCluster
from support.simulation.readers import (
    Check,
    CommittedReader,
    EqualsReference,
    ExactlyOnce,
    NeverFalls,
    Seen,
    Violation,
)
from tallystream_aggregator.stream.broker import Place

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from support.simulation.partition import Outcome

A, B = Place("sums", 0), Place("sums", 1)


class Noted(Check):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def on_record(self, record: Seen) -> None:
        """Note a record."""
        self.told.append(record.value)

    def on_cut(self) -> None:
        """Note a cut."""
        self.told.append("cut")

    def on_end(self) -> None:
        """Note the end."""
        self.told.append("end")


class Written:
    """A cluster with one writer, and a reader with a check."""

    def __init__(self, check: Check) -> None:
        self.cluster = SimulatedCluster()
        self.cluster.create("sums", 2)
        epoch = self.cluster.open_writer("x")
        assert epoch is not None
        self.epoch = epoch
        self.reader = CommittedReader(self.cluster, ["sums"], [check])

    def begin(self, *values: tuple[Place, bytes]) -> None:
        """Write records of a transaction."""
        self.cluster.add_partitions("x", self.epoch, [place for place, _ in values])
        for place, value in values:
            self.cluster.produce("x", self.epoch, place, [(b"k", value)])

    def end(self, outcome: Outcome = "commit") -> None:
        """Decide the end of the transaction, without markers."""
        self.cluster.end("x", self.epoch, outcome)

    def write(self, *values: tuple[Place, bytes], outcome: Outcome = "commit") -> None:
        """Write a transaction to its end, and read it."""
        self.begin(*values)
        self.end(outcome)
        self.cluster.write_markers()
        self.reader.read_all()

    def mark(self, place: Place) -> None:
        """Write one marker."""
        next(action for action in self.cluster.actions() if action.name == f"marker {place}").run()


def test_a_reader_sees_committed_records_after_their_markers_and_no_aborted_ones() -> None:
    """Between the markers of two partitions it is at no cut, and once both are read it is."""
    noted = Noted()
    written = Written(noted)
    written.begin((A, b"1"), (B, b"2"))
    assert list(written.reader.actions()) == []
    written.end()
    written.mark(B)
    written.reader.read_all()
    assert noted.told == ["cut", b"2"]
    written.mark(A)
    written.reader.read_all()
    assert noted.told == ["cut", b"2", b"1", "cut", "cut"]
    noted.told.clear()
    written.write((A, b"3"), outcome="abort")
    assert noted.told == ["cut", "cut"]
    written.reader.finish()
    assert noted.told[-1] == "end"


def test_a_reader_that_stops_within_a_transaction_is_at_no_cut() -> None:
    """It has read one of two records, both, and then the marker."""
    noted = Noted()
    written = Written(noted)
    written.begin((A, b"1"), (A, b"2"))
    written.end()
    written.mark(A)
    for told in ([b"1"], [b"1", b"2"], [b"1", b"2", "cut"]):
        written.reader.read(A, 1)
        assert noted.told == told


def test_a_reader_is_at_no_cut_before_the_end_of_a_compaction() -> None:
    """What was compacted is missing there. After it, all newest values are known."""
    noted = Noted()
    written = Written(noted)
    written.cluster.append(A, b"other", b"0")
    for value in (b"1", b"2"):
        written.begin((A, value))
        written.end()
        written.mark(A)
    written.cluster.partition(A).compact(5, markers=True, tombstones=False)
    written.reader.read(A, 1)
    assert noted.told == [b"0"]
    written.reader.read(A)
    assert noted.told == [b"0", b"2", "cut"]


def test_the_end_of_a_run_within_a_transaction_is_a_violation() -> None:
    """A marker that was never written leaves it in one partition."""
    written = Written(Check())
    written.begin((A, b"1"), (B, b"2"))
    written.end()
    written.mark(A)
    with pytest.raises(Violation, match="some partitions only"):
        written.reader.finish()


def numbers(seen: Seen) -> Iterable[tuple[Any, Any]]:
    return [(seen.key, int(seen.value or b""))]


def test_a_number_that_falls_is_a_violation_unless_it_may() -> None:
    """The same and a higher number are none. `may_fall` gets the key, the last number and the new one."""
    written = Written(NeverFalls(numbers))
    for value in (b"5", b"5", b"6"):
        written.write((A, value))
    with pytest.raises(Violation, match=r"b'k' fell from 6 to 4 at sums:1, offset 0"):
        written.write((B, b"4"))
    written = Written(NeverFalls(numbers, lambda *fall: fall == (b"k", 6, 4)))
    for value in (b"6", b"4"):
        written.write((A, value))
    with pytest.raises(Violation, match="fell from 4 to 3"):
        written.write((A, b"3"))


def ids(seen: Seen) -> list[bytes | None]:
    return [seen.value]


def test_what_is_there_twice_too_much_or_missing_is_a_violation() -> None:
    """A repetition is found at once, the others at the end."""
    written = Written(ExactlyOnce(ids, lambda: [b"1", b"2"]))
    written.write((A, b"1"), (B, b"2"))
    written.reader.finish()
    written.write((A, b"1"), outcome="abort")
    with pytest.raises(Violation, match=r"b'1' is there again, at sums:1, offset 2"):
        written.write((B, b"1"))
    for values, message in (([b"1"], r"missing: \[b'2'\]"), ([b"1", b"2", b"3"], r"not expected: \[b'3'\]")):
        written = Written(ExactlyOnce(ids, lambda: [b"1", b"2"]))
        written.write(*[(A, value) for value in values])
        with pytest.raises(Violation, match=message):
            written.reader.finish()


def both(newest: Mapping[tuple[Place, bytes | None], bytes]) -> tuple[int, int] | None:
    """Return a position of partition B and the number that partition A has."""
    if (B, b"k") not in newest:
        return None
    return int(newest[(B, b"k")]), int(newest[(A, b"k")])


def test_a_result_that_differs_from_the_reference_at_a_cut_is_a_violation() -> None:
    """Between cuts it may differ: there one partition is ahead of the other."""
    check = EqualsReference(both, lambda at: at * 10)
    written = Written(check)
    written.write((A, b"10"), (B, b"1"))
    written.begin((A, b"20"), (B, b"2"))
    written.end()
    written.mark(A)
    written.reader.read_all()
    assert check.compared == 1
    written.mark(B)
    written.reader.read_all()
    assert check.compared == 2
    with pytest.raises(Violation, match="published at 3: 31, but it should be 30"):
        written.write((A, b"31"), (B, b"3"))
