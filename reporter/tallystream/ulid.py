"""ULIDs, the IDs of lives: 48 bits of epoch milliseconds and 80 random bits in base 32 (github.com/ulid/spec)."""

from __future__ import annotations

from functools import lru_cache
from os import urandom

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]
_DIGITS = str.maketrans(_ALPHABET, "0123456789abcdefghijklmnopqrstuv")
"""The letters of a ULID as Python's digits in base 32."""
_TIME = 10
"""The number of letters, from the first one, that contain the time."""


def new_ulid(now_ms: int) -> str:
    """Return a new ULID with the time `now_ms`."""
    return ulid(now_ms, int.from_bytes(urandom(10)))


def ulid(time_ms: int, number: int) -> str:
    """Return the ULID with the time `time_ms`, epoch ms, and `number` (80 bits) in place of the random bits."""
    number |= (time_ms & (1 << 48) - 1) << 80
    return "".join([_PAIRS[number >> shift & 1023] for shift in range(120, -1, -10)])


@lru_cache(maxsize=2_000)
def ulid_ms(ulid: str) -> int:
    """Return the epoch milliseconds in a ULID."""
    return int(ulid[:_TIME].translate(_DIGITS), 32)
