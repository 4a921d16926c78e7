"""The ledger, the topic `metrics-ledger`: who wrote the table, when, from which offsets to which, with which settings.

A driver takes its generation in the ledger before its query starts (`jobs.aggregate.generations`). The settings are for
people and for `verify`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from tallystream.decoding import json_decoder
from tallystream_aggregator.kafka.topic_selection import Offsets

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

log = logging.getLogger(__name__)


class LedgerRow(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One row: at the time `ts`, in epoch ms, a driver took this generation, ended an epoch, or changed the layout.

    `start` and `end` map topic → partition → the next offset to read. A driver that begins a table has its `start`,
    above 0 where earlier records were left out. Otherwise `end` are the positions that all shards had published, and
    `shard_ends` those of each, if several shards were apart when the driver began.

    The row has the table's number of `shards`, and the settings with which records are applied: `forget_after_ms`, the
    time after which lives are forgotten, `max_table_bytes`, and `otlp`, the topics of OTLP metrics.
    """

    v: int = 1
    generation: int = 0
    ts: int = 0
    start: Offsets = {}
    end: Offsets = {}
    shard_ends: list[Offsets] = []
    shards: int
    forget_after_ms: int
    max_table_bytes: int
    otlp: list[str] = []


_encoder = msgspec.json.Encoder()
_decode = json_decoder(LedgerRow)


def encode(row: LedgerRow) -> bytes:
    """Return the row's value, JSON that always has `v`."""
    return b'{"v":1,' + _encoder.encode(row)[1:]


def rows(values: Iterable[bytes | None]) -> Iterator[LedgerRow]:
    """Yield the rows in `values`. A value that is not a row of the ledger is skipped with a warning."""
    for value in values:
        try:
            row = _decode(value or b"")
        except msgspec.DecodeError as error:
            log.warning("a record of the ledger is not a row and is skipped: %s", error)
        else:
            yield row
