"""The text of a sketch, as the record has it. Pure.

It is base64 of the byte 1 (the version), the count of zeros as LEB128, and the positive and the negative bins as
`_bins.py` has them.
"""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64
from typing import TYPE_CHECKING

from tallystream.reporter._bins import bytes_of, number, numbers_in, take_bins

if TYPE_CHECKING:
    from tallystream.reporter._bins import Bins

_VERSION = b"\1"


def to_text(zeros: int, positive: Bins, negative: Bins) -> str:
    """Return the text of these counts."""
    return text_of(zeros, bytes_of(positive), bytes_of(negative))


def text_of(zeros: int, positive: bytes, negative: bytes) -> str:
    """Return the text of the zeros and of the bytes of both signs' bins."""
    return str(b2a_base64(_VERSION + number(zeros) + positive + negative, newline=False), "ascii")


def from_text(text: str) -> tuple[int, Bins, Bins]:
    """Return the zeros, the positive and the negative bins in `text`.

    Raises:
        ValueError: it is no sketch, or has more or other bins than a sketch can have.
    """
    data = a2b_base64(text, strict_mode=True)
    if data[:1] != _VERSION:
        raise ValueError(f"not a sketch of version {_VERSION[0]}")
    numbers = numbers_in(data[1:])
    positive, begin = take_bins(numbers, 1)
    negative, end = take_bins(numbers, begin)
    if end < len(numbers):
        raise ValueError("the sketch has bytes after its end")
    return numbers[0], positive, negative
