"""The seed of a table: the state that a rebuild made, in a file beside the checkpoint that will hold it.

A table with a seed begins with its state and reads on from its offsets. The file stays as long as the checkpoint: a
shard reads it when its first records come, which may be long after the table's first batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tallystream.decoding import msgpack_decoder
from tallystream.errors import TallystreamError
from tallystream_aggregator import files

if TYPE_CHECKING:
    from pathlib import Path


class InitialState(msgspec.Struct, array_like=True):
    """`shards` are the shards' states; `offsets` maps topic → partition → the next offset to read.

    `epoch` is the highest that a writer had taken by then. `combined` are the groups of combiners, each in entries,
    where there are several shards.
    """

    shards: list[bytes]
    offsets: dict[str, dict[str, int]]
    epoch: int
    combined: list[list[bytes]] = []


_decode = msgpack_decoder(InitialState)


def initial_state_path(checkpoint: Path) -> Path:
    """Return where the seed of a checkpoint lies."""
    return checkpoint.with_name(checkpoint.name + ".seed")


def write_initial_state(path: Path, seed: InitialState) -> None:
    """Write the file, whole or not at all; its owner alone may read it."""
    files.write_file(path, msgspec.msgpack.encode(seed))


def read_initial_state(path: Path, *, shards: int | None = None) -> InitialState:
    """Return what is in the file; `shards` is how many the table has, None where any number will do.

    Raises:
        TallystreamError: it can't be read, or has another number of shards.
    """
    try:
        seed = _decode(path.read_bytes())
    except (OSError, msgspec.DecodeError) as error:
        raise TallystreamError(
            f"seed: {path} can't be read ({error}); restore it, or run tallystream rebuild for a new checkpoint."
        ) from error
    if shards is not None and (len(seed.shards) != shards or (shards > 1 and len(seed.combined) != shards)):
        raise TallystreamError(
            f"seed: {path} has {len(seed.shards)} shards, the table {shards}; run tallystream rebuild again."
        )
    return seed
