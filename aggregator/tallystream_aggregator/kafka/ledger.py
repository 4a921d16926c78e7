"""The ledger, the topic `metrics-ledger`: which offsets each epoch of the loop covered, and when it ran.

A driver takes its generation in the ledger before its query starts (`jobs.aggregate.generations`). The rows of epochs
are for people and for `verify`: they say which offsets were read at a time, and how the table was set up.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Literal

import msgspec

from tallystream.decoding import json_decoder
from tallystream_aggregator.kafka.topic_selection import Offsets

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

log = logging.getLogger(__name__)


class LedgerRow(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One row. `kind` "opened": a driver took this generation. "epoch": an epoch ended, `batch` of Spark.

    `start` and `end` map topic → partition → the next offset to read, so an epoch covers start <= offset < end. Of
    several shards, these are the offsets that all have reached. `ts` is the time of the epoch's start in epoch ms.

    A row "opened" of a driver that begins a table has its `start`, above 0 where earlier records were left out. That of
    a command that gave the table another layout has the `end` at which it did.
    It has the table's number of `shards`, the tags that the sums do not have, `drop_tags`, or the only ones that they
    have, `keep_tags`, and the settings with which records are applied: `forget_after_ms`, the time after which lives
    are forgotten, `max_table_bytes`, and `otlp`, the topics of OTLP metrics. A row "epoch" has those among the topics
    of `end`.
    """

    v: int = 1
    kind: Literal["opened", "epoch"]
    generation: int = 0
    batch: int = -1
    ts: int = 0
    start: Offsets = {}
    end: Offsets = {}
    shards: int = 0
    forget_after_ms: int = 0
    max_table_bytes: int = 0
    drop_tags: tuple[str, ...] = ()
    keep_tags: tuple[str, ...] | None = None
    otlp: list[str] = []


_encoder = msgspec.json.Encoder()
decode = json_decoder(LedgerRow)
"""Returns the row in a value. If it is not one, it raises msgspec.DecodeError."""


def encode(row: LedgerRow) -> bytes:
    """Return the row's value, JSON that always has `v`."""
    return b'{"v":1,' + _encoder.encode(row)[1:]


def rows(values: Iterable[bytes | None]) -> Iterator[LedgerRow]:
    """Yield the rows in `values`. A value that is not a row of the ledger is skipped with a warning."""
    for value in values:
        try:
            row = decode(value or b"")
        except msgspec.DecodeError as error:
            log.warning("a record of the ledger is not a row and is skipped: %s", error)
        else:
            yield row
