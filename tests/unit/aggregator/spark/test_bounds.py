"""What is to come has to be there: whatever was deleted before it was read is said."""

from __future__ import annotations

import pytest

from tallystream_aggregator.spark.catch_up.bounds import Bounds, require_all
from tallystream_aggregator.spark.catch_up.reader import LostRecordsError


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({"m": {"0": (0, 9)}}, "partition 1: it is gone, and 5 is the next offset"),
        ({"m": {"0": (0, 9), "1": (6, 9)}}, "partition 1: it has offsets 6 to 9, and 5 is the next"),
        ({"m": {"0": (0, 9), "1": (0, 4)}}, "partition 1: it has offsets 0 to 4, and 5 is the next"),
        ({"m": {"0": (0, 9), "1": (0, 9), "2": (1, 1)}}, "partition 2: it is new, and begins at offset 1"),
    ],
)
def test_a_gap_is_said(found: Bounds, said: str) -> None:
    """A partition that is gone, begins later, ends before, or is new and has lost its beginning."""
    with pytest.raises(LostRecordsError, match=said):
        require_all({"m": {"0": 5, "1": 5}}, found)


def test_what_is_all_there_is_taken() -> None:
    """A partition at its end, one at its beginning, and a new one from its first record."""
    require_all({"m": {"0": 9, "1": 5}}, {"m": {"0": (0, 9), "1": (5, 9), "2": (0, 1)}})
