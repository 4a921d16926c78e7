"""The file with the initial state of a rebuilt table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from tallystream.errors import TallystreamError
from tallystream_aggregator.initial_state import InitialState, read_initial_state, write_initial_state

if TYPE_CHECKING:
    from pathlib import Path


def test_an_initial_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Its folder is created, and no temporary file remains."""
    path, state = (
        tmp_path / "new" / "checkpoint.initial-state",
        InitialState([b"state"], {"metrics": {"0": 7}}, 3, [[b"entry"]]),
    )
    write_initial_state(path, state)
    assert read_initial_state(path) == state
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_an_initial_state_with_another_number_of_shards_is_rejected(tmp_path: Path) -> None:
    """A rebuild that was killed between its two files leaves one. A shard must not begin empty then."""
    path = tmp_path / "checkpoint.initial-state"
    write_initial_state(path, InitialState([b"0", b"1"], {}, 3, [[b"a"], [b"b"]]))
    assert [read_initial_state(path, shards=2).shards[shard] for shard in range(2)] == [b"0", b"1"]
    with pytest.raises(TallystreamError, match=r"checkpoint\.initial-state has 2 shards, the table 4"):
        read_initial_state(path, shards=4)


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"\x93",
        msgspec.msgpack.encode([[], {b"\xff": {}}, 1]),
        b"\x94\x90\x81\xa1\xff\x80\x01\x90",
        b"\x91" * 100_000,
    ],
    ids=["empty", "cut off", "another shape", "a topic that is not UTF-8", "nested too deep"],
)
def test_the_error_of_a_damaged_initial_state_has_a_remedy(tmp_path: Path, damaged: bytes) -> None:
    """It names the file."""
    path = tmp_path / "checkpoint.initial-state"
    path.write_bytes(damaged)
    with pytest.raises(
        TallystreamError, match=r"checkpoint\.initial-state can't be read \(.*\); restore it, or run tallystream reb"
    ):
        read_initial_state(path)
