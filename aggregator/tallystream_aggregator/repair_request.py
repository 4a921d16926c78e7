"""The file beside the checkpoint in which the active writer asks the shards to publish rows and sums again."""

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
    """Keys to be published again: `table` has those of `metrics-table` by shard, `sums` those of `metrics-agg`.

    `number` counts the requests of the writer with this `epoch`, from 1.
    """

    epoch: int
    number: int
    table: dict[int, list[bytes]] = {}
    sums: list[bytes] = []


_decode = msgpack_decoder(Request)


def request_path(checkpoint: Path) -> Path:
    """Return the path of the request of a checkpoint's writer."""
    return checkpoint.with_name(checkpoint.name + ".repair")


def write_request(path: Path, request: Request) -> None:
    """Write the file atomically. Only its owner may read it."""
    files.write_file(path, msgspec.msgpack.encode(request))


def read_request(path: Path) -> Request | None:
    """Return the request in the file, or None if there is none or it can't be read, which is logged as a warning.

    Nothing is lost then: the writer writes the request again until every shard has carried it out.
    """
    try:
        return _decode(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        log.warning("%s can't be read, and nothing of it is repaired until it can: %s", path, error)
        return None
