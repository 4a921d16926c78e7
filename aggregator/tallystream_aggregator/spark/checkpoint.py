"""Read the progress of a query from Spark's checkpoint: from its offset log and its commit log.

The IDs of the checkpoint's topics are in a file beside it. A topic that was deleted and created again has the same
name but other records. If it has as many as the old one, Spark continues in the middle of it without an error. Its ID
differs.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import TopicCollection

from tallystream.errors import TallystreamError
from tallystream_aggregator import files
from tallystream_aggregator.kafka import clients

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from tallystream_aggregator.kafka.topic_selection import Offsets

LOG_VERSION = "v1"

TIMEOUT_S = 10.0
"""The time for one request to the brokers."""


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


def last_committed(checkpoint: Path) -> tuple[int, Offsets] | None:
    """Return the number of the last finished batch and its end offsets, or None if no batch has finished.

    Raises:
        CheckpointError: a file is damaged or of an unknown version.
    """
    done = max(_numbers(checkpoint / "commits"), default=None)
    if done is None:
        return None
    return done, _offsets(checkpoint / "offsets" / str(done))[0]


def _numbers(log: Path) -> list[int]:
    return [int(path.name) for path in log.iterdir() if path.name.isdigit()] if log.is_dir() else []


def _offsets(path: Path) -> tuple[Offsets, int]:
    entry = _entry(path)
    if entry is None:
        raise _damaged(path, FileNotFoundError("it is missing"))
    return entry


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


class TopicIdentity:
    """The file with the IDs of a checkpoint's topics. Each line has an ID and a name.

    `remedy` is the advice in the error if a topic was deleted and created again.
    """

    def __init__(self, checkpoint: Path, kafka: Mapping[str, str], *, remedy: str) -> None:
        self._checkpoint = checkpoint
        self._remedy = remedy
        self._admin = clients.admin(kafka)

    def note(self, topics: Iterable[str]) -> None:
        """Store the current IDs of `topics` for a new table, and remove all others.

        Raises:
            KafkaException: the broker did not answer.
            OSError: the file can't be written.
        """
        self._write(self._ids(topics))

    def check(self, topics: Iterable[str]) -> list[str]:
        """Compare the current IDs of `topics` with the stored ones. Store those of new topics, and return their names.

        Raises:
            CheckpointError: the file is damaged.
            TallystreamError: a topic was deleted and created again.
            KafkaException: the broker did not answer.
            OSError: the file can't be read or written.
        """
        names = sorted(topics)
        stored, now = topic_ids(self._checkpoint), self._ids(names)
        for topic in stored.keys() & now.keys():
            if now[topic] != stored[topic]:
                raise TallystreamError(
                    f"topic {topic}: it was deleted and created again (ID {now[topic]}, the checkpoint is of "
                    f"{stored[topic]}), so its offsets mean other records: {self._remedy}."
                )
        new = sorted(now.keys() - stored.keys())
        if new:
            self._write(now | stored)
        return new

    def _write(self, ids: Mapping[str, str]) -> None:
        files.write_file(
            _ids_path(self._checkpoint), "".join(f"{id_} {topic}\n" for topic, id_ in sorted(ids.items())).encode()
        )

    def _ids(self, topics: Iterable[str]) -> dict[str, str]:
        described = self._admin.describe_topics(TopicCollection(list(topics)), request_timeout=TIMEOUT_S)
        return {topic: str(found.result().topic_id) for topic, found in described.items()}
