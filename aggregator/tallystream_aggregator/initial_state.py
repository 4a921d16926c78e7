"""The initial state of a rebuilt table, in a file beside its checkpoint.

The table begins with this state and reads `metrics` from its offsets. The file must stay as long as the checkpoint,
because a shard reads it at its first record, which may come long after the table's first batch.
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
    """`shards` are the states of the shards. `offsets` maps topic → partition → the next offset to read.

    `epoch` is the highest epoch that a writer had taken. `combined` are the groups of combiners, each as a list of
    entries; it is empty for one shard.
    """

    shards: list[bytes]
    offsets: dict[str, dict[str, int]]
    epoch: int
    combined: list[list[bytes]] = []


_decode = msgpack_decoder(InitialState)


def initial_state_path(checkpoint: Path) -> Path:
    """Return the path of the file with the initial state of a checkpoint."""
    return checkpoint.with_name(checkpoint.name + ".initial-state")


def write_initial_state(path: Path, state: InitialState) -> None:
    """Write the file atomically. Only its owner may read it."""
    files.write_file(path, msgspec.msgpack.encode(state))


def read_initial_state(path: Path, *, shards: int | None = None) -> InitialState:
    """Return the content of the file. `shards` is the table's number of shards; None allows any.

    Raises:
        TallystreamError: the file can't be read, or has another number of shards.
    """
    try:
        state = _decode(path.read_bytes())
    except (OSError, msgspec.DecodeError) as error:
        raise TallystreamError(
            f"initial state: {path} can't be read ({error}); restore it, or run tallystream rebuild again."
        ) from error
    if shards is not None and (len(state.shards) != shards or (shards > 1 and len(state.combined) != shards)):
        raise TallystreamError(
            f"initial state: {path} has {len(state.shards)} shards, the table {shards}; run tallystream rebuild again."
        )
    return state
