"""The seed of a table: the state that a rebuild made, in a file beside the checkpoint that will hold it.

A table with a seed begins with its state and reads on from its offsets. The file stays: a shard asks for it when
its first records come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tallystream.aggregator import private
from tallystream.reporter.errors import TallystreamError

if TYPE_CHECKING:
    from pathlib import Path


class Seed(msgspec.Struct, array_like=True):
    """`shards` are the shards' states; `offsets` maps topic → partition → the next offset to read.

    `epoch` is that of the table's last writer. `combined` are the groups of combiners, each in entries, where there
    are several shards.
    """

    shards: list[bytes]
    offsets: dict[str, dict[str, int]]
    epoch: int
    combined: list[list[bytes]] = []


def seed_path(checkpoint: Path) -> Path:
    """Return where the seed of a checkpoint lies."""
    return checkpoint.with_name(checkpoint.name + ".seed")


def write_seed(path: Path, seed: Seed) -> None:
    """Write the file, whole or not at all; its owner alone may read it."""
    private.write_file(path, msgspec.msgpack.encode(seed))


def read_seed(path: Path) -> Seed:
    """Return what is in the file.

    Raises:
        TallystreamError: it can't be read.
    """
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=Seed)
    except (OSError, msgspec.DecodeError) as error:
        raise TallystreamError(f"seed: {path} can't be read ({error}); run tallystream rebuild again.") from error
