"""What the table is to publish again: a file beside the checkpoint, from the active writer to the shards."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from tallystream.decoding import msgpack_decoder
from tallystream_aggregator import files

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger(__name__)


class Request(msgspec.Struct, array_like=True):
    """Keys to be published again: of `metrics-table` by shard, of `metrics-agg` by every shard that has the metric.

    `number` counts the requests of the writer with this `epoch`, from 1.
    """

    epoch: int
    number: int
    table: dict[int, list[bytes]] = {}
    sums: list[bytes] = []


_decode = msgpack_decoder(Request)


def request_path(checkpoint: Path) -> Path:
    """Return where the request of a checkpoint's writer lies."""
    return checkpoint.with_name(checkpoint.name + ".repair")


def write_request(path: Path, request: Request) -> None:
    """Write the file, whole or not at all; its owner alone may read it."""
    files.write_file(path, msgspec.msgpack.encode(request))


def read_request(path: Path) -> Request | None:
    """Return the request in the file, None where there is none; with a warning where it can't be read.

    The writer asks again until every shard has answered, so nothing is lost by that.
    """
    try:
        return _decode(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        log.warning("%s can't be read, and nothing of it is repaired until it can: %s", path, error)
        return None
