"""The fence: the rows that it admits depend only on earlier rows, not on batches or crashes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.undecodable import UNDECODABLE
from tallystream.errors import TallystreamError
from tallystream_aggregator.kafka.ledger import Epochs
from tallystream_aggregator.shipping.fence import Fence
from tallystream_aggregator.sums import Sum

if TYPE_CHECKING:
    from pathlib import Path

ANY = Epochs(lambda: None)
"""A ledger without rows."""
FORGED = 2**62
"""An epoch that no aggregator has."""


def _rows(*epochs: int, first: int = 0) -> list[tuple[int, Sum]]:
    return [
        (first + at, Sum(app="a", name="n", type="counter", count=first + at, ts=0, epoch=epoch))
        for at, epoch in enumerate(epochs)
    ]


def _counts(admitted: list[Sum]) -> list[int | None]:
    return [row.count for row in admitted]


def test_a_row_with_a_lower_epoch_is_dropped(tmp_path: Path) -> None:
    """It is counted. The other rows are admitted in order."""
    fence = Fence(tmp_path / "fence", ANY)
    assert _counts(fence.admit(_rows(0, 1, 1, 2, 1, 2, 0, 3, 2))) == [0, 1, 2, 3, 5, 7]
    assert fence.dropped == 3
    assert _counts(fence.admit(_rows(2, 3, first=9))) == [10]
    assert fence.dropped == 4


def test_a_fence_is_stored_in_its_file(tmp_path: Path) -> None:
    """A new fence on the same file has the highest epoch. Its folder is created."""
    path = tmp_path / "new" / "fence"
    Fence(path, ANY).admit(_rows(4))
    assert _counts(Fence(path, ANY).admit(_rows(3, 4, 5, first=1))) == [2, 3]
    assert [file.name for file in path.parent.iterdir()] == ["fence"]


def test_a_batch_that_runs_again_admits_the_same_rows(tmp_path: Path) -> None:
    """The epoch rose in the batch, and the shipper crashed before it wrote points."""
    path = tmp_path / "fence"
    Fence(path, ANY).admit(_rows(1))
    batch = _rows(1, 1, 2, 1, 2, first=1)
    assert _counts(Fence(path, ANY).admit(batch)) == [1, 2, 3, 5]
    assert _counts(Fence(path, ANY).admit(batch)) == [1, 2, 3, 5]


def test_a_rise_is_kept_after_compaction(tmp_path: Path) -> None:
    """The row where the epoch rose is deleted when the batch runs again. The stale row after it is dropped."""
    path = tmp_path / "fence"
    batch = _rows(1, 2, 1)
    Fence(path, ANY).admit(batch)
    assert _counts(Fence(path, ANY).admit([batch[0], batch[2]])) == [0]


def test_a_new_checkpoint_with_an_old_fence_admits_the_same_rows(tmp_path: Path) -> None:
    """The rows of earlier epochs are admitted as they were the first time."""
    path = tmp_path / "fence"
    rows = _rows(1, 1, 2, 3, 2)
    first = [*Fence(path, ANY).admit(rows[:2]), *Fence(path, ANY).admit(rows[2:])]
    again = Fence(path, ANY)
    assert [*again.admit(rows[:2]), *again.admit(rows[2:])] == first


@settings(deadline=None)
@given(st.lists(st.integers(0, 4)), st.lists(st.integers(1, 4), min_size=1), st.data())
def test_batches_and_crashes_do_not_change_what_is_admitted(
    tmp_path_factory: pytest.TempPathFactory, epochs: list[int], sizes: list[int], data: st.DataObject
) -> None:
    """The rows are divided into any batches, and any batch runs twice with a new fence.

    An aggregator may take a dropped epoch before the batch runs again, or the ledger may be emptied.
    """
    rows = _rows(*epochs)
    known_epochs = Epochs(lambda: 3)
    wanted = Fence(tmp_path_factory.mktemp("once") / "fence", known_epochs).admit(rows)
    path = tmp_path_factory.mktemp("cut") / "fence"
    fence = Fence(path, known_epochs)
    admitted: list[Sum] = []
    at, turn = 0, 0
    while at < len(rows):
        batch = rows[at : at + sizes[turn % len(sizes)]]
        found = fence.admit(batch)
        if data.draw(st.booleans()):
            known = data.draw(st.sampled_from([3, 4, None]))
            assert Fence(path, Epochs(lambda known=known: known)).admit(batch) == found  # type: ignore[misc]
            fence = Fence(path, known_epochs)
        admitted += found
        at, turn = at + len(batch), turn + 1
    assert admitted == wanted


def test_a_row_with_an_unknown_epoch_is_dropped(tmp_path: Path) -> None:
    """It is counted. Later rows of the active writer are admitted, in this batch and the next."""
    fence = Fence(tmp_path / "fence", Epochs(lambda: 2))
    assert _counts(fence.admit(_rows(1, FORGED, 1, 2, 3, 2))) == [0, 2, 3, 5]
    assert fence.dropped == 2
    assert _counts(fence.admit(_rows(2, FORGED, 2, first=6))) == [6, 8]


def test_a_new_writer_is_found_in_the_ledger(tmp_path: Path) -> None:
    """The ledger is read when a row has a higher epoch than the highest known one, once for each batch."""
    epochs = iter([1, 2])
    fence = Fence(tmp_path / "fence", Epochs(lambda: next(epochs)))
    assert _counts(fence.admit(_rows(1, 1))) == [0, 1]
    assert _counts(fence.admit(_rows(1, 2, 2, 1, FORGED, FORGED, first=2))) == [2, 3, 4]


def test_a_dropped_row_stays_dropped_when_its_batch_runs_again(tmp_path: Path) -> None:
    """An aggregator has begun that epoch since the first run. The batch must ship the same rows."""
    path = tmp_path / "fence"
    batch = _rows(1, 3, 1)
    assert _counts(Fence(path, Epochs(lambda: 1)).admit(batch)) == [0, 2]
    fence = Fence(path, Epochs(lambda: 3))
    assert _counts(fence.admit(batch)) == [0, 2]
    assert _counts(fence.admit(_rows(3, 1, first=3))) == [3]


def test_an_unreadable_ledger_changes_nothing(tmp_path: Path) -> None:
    """The caller gets the error. Nothing is counted or written."""

    def unreadable() -> int:
        raise TallystreamError("the ledger can't be read")

    path = tmp_path / "fence"
    fence = Fence(path, Epochs(unreadable))
    with pytest.raises(TallystreamError):
        fence.admit(_rows(0, 1))
    assert (fence.dropped, path.exists()) == (0, False)


def test_no_rows_write_no_file(tmp_path: Path) -> None:
    """An empty batch has no effect."""
    assert Fence(tmp_path / "fence", ANY).admit([]) == []
    assert not (tmp_path / "fence").exists()


@pytest.mark.parametrize("damaged", [b"7x", b"[[1]]", *UNDECODABLE.values()])
def test_a_damaged_file_is_an_error(tmp_path: Path, damaged: bytes) -> None:
    """The error names the file and a remedy."""
    path = tmp_path / "fence"
    path.write_bytes(damaged)
    with pytest.raises(
        TallystreamError, match=r"fence is damaged .*; delete it if no old aggregator can be running\.$"
    ):
        Fence(path, ANY)


def test_dropped_rows_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """They may be the rows of a replaced writer, or all rows of a topic that was created again."""
    fence = Fence(tmp_path / "fence", Epochs(lambda: 5))
    fence.admit(_rows(5))
    assert not caplog.text
    assert fence.admit(_rows(1, 2, first=1000)) == []
    assert "2 rows are not shipped: an earlier row has a higher epoch (the highest is 5)" in caplog.text
    assert "the first is at offset 1000, epoch 1" in caplog.text


def test_a_fence_that_cannot_be_read_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    """Here a folder has its name. Without its epochs the shipper would ship rows of a replaced writer."""
    (tmp_path / "ship.epoch").mkdir()
    with pytest.raises(TallystreamError, match=r"^fence: \S+/ship\.epoch can't be read: Is a directory\.$"):
        Fence(tmp_path / "ship.epoch", ANY)
