"""The file that a rebuild makes: read back as it was written, and never a traceback."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from tallystream.aggregator.seed import Seed, read_seed, write_seed
from tallystream.reporter.errors import TallystreamError

if TYPE_CHECKING:
    from pathlib import Path


def test_a_seed_reads_back(tmp_path: Path) -> None:
    """In a folder that had to be made, and with nothing left beside it."""
    path, seed = tmp_path / "new" / "checkpoint.seed", Seed([b"state"], {"metrics": {"0": 7}}, 3, [[b"entry"]])
    write_seed(path, seed)
    assert read_seed(path) == seed
    assert [file.name for file in path.parent.iterdir()] == [path.name]


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
def test_a_damaged_seed_is_one_sentence_with_the_remedy(tmp_path: Path, damaged: bytes) -> None:
    """It names the file."""
    path = tmp_path / "checkpoint.seed"
    path.write_bytes(damaged)
    with pytest.raises(TallystreamError, match=r"checkpoint\.seed can't be read \(.*\); run tallystream rebuild again"):
        read_seed(path)
