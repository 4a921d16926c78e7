"""One Spark partition for each loop: the keys that Spark's hash puts there.

All loops of a query must run side by side, and Spark runs the keys of a partition one after the other.
"""

from __future__ import annotations

from itertools import count

SEED = 42
_MASK = 0xFFFFFFFF


def keys_of(partitions: int) -> list[int]:
    """Return a key for each partition, in order: Spark puts the rows with it there."""
    found: dict[int, int] = {}
    for key in count():
        found.setdefault(spark_hash(key) % partitions, key)
        if len(found) == partitions:
            return [found[partition] for partition in range(partitions)]
    raise AssertionError


def spark_hash(key: int) -> int:
    """Return Spark's hash of an integer of 32 bits from 0 on: MurmurHash3 with the seed 42, signed."""
    mixed = _rotate(key * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK
    hashed = (_rotate(SEED ^ mixed, 13) * 5 + 0xE6546B64) & _MASK
    hashed ^= 4  # the length in bytes
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        hashed = (hashed ^ hashed >> shift) * factor & _MASK
    return hashed - (1 << 32) if hashed >> 31 else hashed


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & _MASK
