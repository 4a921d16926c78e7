"""The sharding of a table: its number of shards, the number of partitions of Spark's state, and the tags of its sums.

The sharding is fixed when the table is created, and is stored in a file beside the checkpoint. A checkpoint without the
file has one shard, and sums with all tags.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tallystream.decoding import json_decoder
from tallystream.errors import ConfigError, TallystreamError
from tallystream_aggregator import files
from tallystream_aggregator.initial_state import initial_state_path
from tallystream_aggregator.table.sum_tags import SumTags

if TYPE_CHECKING:
    from pathlib import Path

MAX_SHARDS = 1024


class Sharding(msgspec.Struct, frozen=True):
    """The number of shards, and of Spark's partitions. `restored`: the table began with a rebuilt initial state.

    `sum_tags` are the tags that the sums have. `since` is the epoch in which a new table began: rows of earlier epochs
    on `metrics-table` are not its own. It is 0 for a restored table, whose state has the epoch.
    """

    shards: int = 1
    partitions: int = 1
    restored: bool = False
    sum_tags: SumTags = SumTags()
    since: int = 0


_decode = json_decoder(Sharding)


def require_sharding(shards: int | None, partitions: int | None, *, option: str) -> None:
    """Require numbers that a table can have. `option` is the name of the second option.

    Raises:
        ConfigError: a number is out of range, or there are more partitions than shards.
    """
    for name, number in (("--shards", shards), (option, partitions)):
        if number is not None and not 1 <= number <= MAX_SHARDS:
            raise ConfigError(name, number, f"give a whole number from 1 to {MAX_SHARDS}")
    if shards is not None and partitions is not None and partitions > shards:
        raise ConfigError(option, partitions, f"give no more than there are shards: {shards}")


def sharding_path(checkpoint: Path) -> Path:
    """Return the path of the file with a checkpoint's sharding."""
    return checkpoint.with_name(checkpoint.name + ".sharding")


def write_sharding(checkpoint: Path, sharding: Sharding) -> None:
    """Write the file atomically. The caller has the lease, or the checkpoint is not in use."""
    files.write_file(sharding_path(checkpoint), msgspec.json.encode(sharding) + b"\n")


def sharding_of(
    checkpoint: Path, shards: int | None, partitions: int | None, sum_tags: SumTags | None = None
) -> Sharding:
    """Return the sharding of a checkpoint: its own, or, for a new checkpoint, that of the options.

    Writes nothing: only the aggregator that has the lease may do that (`write_sharding`).

    Raises:
        ConfigError: the options differ from the checkpoint's sharding, or the table's initial state is missing.
        TallystreamError: the file can't be read.
    """
    path, initial_state = sharding_path(checkpoint), initial_state_path(checkpoint)
    has_batches, restored = (checkpoint / "offsets").exists(), initial_state.exists()
    if path.exists() and (has_batches or restored):
        try:
            known = _decode(path.read_bytes())
        except (OSError, msgspec.DecodeError) as error:
            raise TallystreamError(f"sharding: {path} can't be read ({error}); restore it.") from error
    elif has_batches:
        known = Sharding()
    else:
        number = shards or 1
        known = Sharding(number, partitions or number, sum_tags=sum_tags or SumTags())
    if known.restored and not restored:
        raise ConfigError(
            "--checkpoint",
            str(checkpoint),
            f"its table began with {initial_state}, which is missing; shards without a record would begin empty: "
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
    if sum_tags not in (None, known.sum_tags):
        raise ConfigError(
            "--drop-tag" if sum_tags.keep is None else "--keep-tags",
            ",".join(sum_tags.drop if sum_tags.keep is None else sum_tags.keep),
            f"the table in {checkpoint} has {known.sum_tags}: leave the option out, or run tallystream rebuild with it",
        )
    return msgspec.structs.replace(known, restored=restored)
