"""The shards of a table, and those of a record: an instance is in one of them."""

from __future__ import annotations

import re
import zlib
from itertools import count
from typing import TYPE_CHECKING

from tallystream_aggregator.otlp import decode as otlp
from tallystream_aggregator.table.decode import CLOCK_KEY

if TYPE_CHECKING:
    from collections.abc import Collection

    from tallystream_aggregator.table.decode import Record


def shard_of(key: bytes | None, shards: int) -> int:
    """Return the shard of the records with this key, by CRC-32."""
    return zlib.crc32(key or b"") % shards


def shards_of(record: Record, shards: int, otlp_topics: Collection[str]) -> set[int]:
    """Return the shards of a record: that of its key, or in an OTLP topic those of the instances in it.

    A clock record is in all shards.
    """
    if record.key == CLOCK_KEY and record.topic not in otlp_topics:
        return set(range(shards))
    if shards > 1 and is_otlp(record, otlp_topics):
        found = {shard_of(instance.encode(), shards) for instance in otlp.instances(record.value or b"")}
        if found:
            return found
    return {shard_of(record.key, shards)}


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
