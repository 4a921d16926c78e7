"""The layout of a table: its number of shards, and the number of partitions of Spark's state that hold them.

The layout is fixed when the table is created, and is stored in a file beside the checkpoint. A checkpoint without the
file has one shard.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tallystream.decoding import json_decoder
from tallystream.errors import ConfigError, TallystreamError
from tallystream_aggregator import files
from tallystream_aggregator.initial_state import initial_state_path

if TYPE_CHECKING:
    from pathlib import Path

MAX_SHARDS = 1024


class Sharding(msgspec.Struct, frozen=True):
    """The number of shards, and of Spark's partitions that they are spread over; `seeded`: the table needs its seed."""

    shards: int = 1
    partitions: int = 1
    seeded: bool = False


_decode = json_decoder(Sharding)


def require_sharding(shards: int | None, partitions: int | None, *, option: str) -> None:
    """Refuse numbers that no table has; `option` is the name of the second one.

    Raises:
        ConfigError: one is out of range, or there are more partitions than shards.
    """
    for name, number in (("--shards", shards), (option, partitions)):
        if number is not None and not 1 <= number <= MAX_SHARDS:
            raise ConfigError(name, number, f"give a whole number from 1 to {MAX_SHARDS}")
    if shards is not None and partitions is not None and partitions > shards:
        raise ConfigError(option, partitions, f"give no more than there are shards: {shards}")


def sharding_path(checkpoint: Path) -> Path:
    """Return the path of a checkpoint's layout file."""
    return checkpoint.with_name(checkpoint.name + ".layout")


def write_sharding(checkpoint: Path, layout: Sharding) -> None:
    """Write the file, whole or not at all. The caller has the lease, or the checkpoint is not in use."""
    files.write_file(sharding_path(checkpoint), msgspec.json.encode(layout) + b"\n")


def sharding_of(checkpoint: Path, shards: int | None, partitions: int | None) -> Sharding:
    """Return the layout of a checkpoint: the one that it has, or, for a new one, what was asked for.

    Nothing is written: only the aggregator that has the lease may do that (`write_sharding`).

    Raises:
        ConfigError: something else than it has is asked for, or the seed with which its table began is gone.
        TallystreamError: the file can't be read.
    """
    path, seed = sharding_path(checkpoint), initial_state_path(checkpoint)
    begun, has_seed = (checkpoint / "offsets").exists(), seed.exists()
    if path.exists() and (begun or has_seed):
        try:
            known = _decode(path.read_bytes())
        except (OSError, msgspec.DecodeError) as error:
            raise TallystreamError(f"layout: {path} can't be read ({error}); restore it.") from error
    elif begun:
        known = Sharding()
    else:
        asked = shards or 1
        known = Sharding(asked, partitions or asked)
    if known.seeded and not has_seed:
        raise ConfigError(
            "--checkpoint",
            str(checkpoint),
            f"its table began with {seed}, which is gone, and a shard that has had no record would begin empty: "
            "restore the file, or move the checkpoint away and run tallystream rebuild",
        )
    for option, given, has in (
        ("--shards", shards, known.shards),
        ("--state-partitions", partitions, known.partitions),
    ):
        if given is not None and given != has:
            raise ConfigError(
                option, given, f"{checkpoint} has {has}: leave the option out, or run tallystream rebuild with it"
            )
    return msgspec.structs.replace(known, seeded=has_seed)
