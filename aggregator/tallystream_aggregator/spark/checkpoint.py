"""Read the progress of a query from Spark's checkpoint: from its offset log and its commit log.

The IDs of the checkpoint's topics are in a file beside it. A topic that was deleted and created again has the same
name but other records. If it has as many as the old one, Spark continues in the middle of it without an error. Its ID
differs.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from tallystream.errors import TallystreamError

if TYPE_CHECKING:
    from pathlib import Path

    from tallystream_aggregator.kafka.topic_selection import Offsets

LOG_VERSION = "v1"


class Finished(NamedTuple):
    """A finished batch: its number, the offsets at its start and end, and its time in epoch ms.

    The end offsets are exclusive. `start` is None for the first batch, or if Spark has deleted the entry before it.
    """

    batch: int
    start: Offsets | None
    end: Offsets
    ts_ms: int


class CheckpointError(TallystreamError):
    """A file of the checkpoint is missing, damaged or of an unknown version."""


def finished_batches(checkpoint: Path, after: int = -1) -> list[Finished]:
    """Return the finished batches with a number above `after`, oldest first. Spark keeps about the last hundred.

    Raises:
        CheckpointError: a file is damaged or of an unknown version.
    """
    batches = []
    for number in sorted(number for number in _numbers(checkpoint / "commits") if number > after):
        before, entry = (_entry(checkpoint / "offsets" / str(one)) for one in (number - 1, number))
        if entry is not None:
            end, ts_ms = entry
            batches.append(Finished(number, None if before is None else before[0], end, ts_ms))
    return batches


def _numbers(log: Path) -> list[int]:
    return [int(path.name) for path in log.iterdir() if path.name.isdigit()] if log.is_dir() else []


def _entry(path: Path) -> tuple[Offsets, int] | None:
    """Return an entry of the offset log, or None if there is no such file: Spark deletes the oldest at any time."""
    try:
        version, metadata, source = path.read_text(encoding="utf-8").splitlines()
        ts_ms, end = int(json.loads(metadata)["batchTimestampMs"]), json.loads(source)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _damaged(path, error) from error
    if version != LOG_VERSION:
        raise CheckpointError(f"checkpoint: {path} is of version {version!r}, {LOG_VERSION!r} is known here.")
    return end, ts_ms


def _damaged(path: Path, error: Exception) -> CheckpointError:
    return CheckpointError(f"checkpoint: {path} can't be read ({error}); if it is damaged, move the checkpoint away.")


def topic_ids(checkpoint: Path) -> dict[str, str]:
    """Return the stored IDs of a checkpoint's topics by name, without any if none are stored.

    Raises:
        CheckpointError: the file is damaged.
        OSError: it can't be read.
    """
    path = _ids_path(checkpoint)
    if not path.exists():
        return {}
    try:
        lines = (line.split() for line in path.read_text(encoding="utf-8").splitlines())
        return {topic: id_ for id_, topic in lines}
    except ValueError as error:
        raise _damaged(path, error) from error


def _ids_path(checkpoint: Path) -> Path:
    return checkpoint.with_name(checkpoint.name + ".topic")
