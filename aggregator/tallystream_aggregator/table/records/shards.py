"""The shards of a table: an instance is in one of them."""

from __future__ import annotations

import re
import zlib
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from tallystream_aggregator.table.records.decode import Record


def shard_of(key: bytes | None, shards: int) -> int:
    """Return the shard of the records with this key, by CRC-32."""
    return zlib.crc32(key or b"") % shards


INSTANCE = "tallystream-aggregator"
"""An instance ID without metrics, as is this ID with a number behind it: it stands for a shard (`instances`)."""


def instances(shards: int) -> dict[int, str]:
    """Return an instance ID for each shard. One of them is `INSTANCE`."""
    found: dict[int, str] = {}
    for number in count():
        instance = f"{INSTANCE}-{number}" if number else INSTANCE
        found.setdefault(shard_of(instance.encode(), shards), instance)
        if len(found) == shards:
            return found
    raise AssertionError


_FORGET = re.compile(rb'\{\s*(?:"v"\s*:\s*1\s*,\s*)?"forget"\s*:')


def is_otlp(record: Record, otlp_topics: Collection[str]) -> bool:
    """Tell whether a record is of an OTLP topic, and not a tombstone or a forget record there."""
    return record.topic in otlp_topics and record.value is not None and _FORGET.match(record.value) is None
