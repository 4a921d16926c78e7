"""Divides a message of protobuf into its fields, as far as the known parts of a record need it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

OTHER = 0
"""The number that stands for a field without a length, one with a number above 15, and a message that ends early."""


def fields_of(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the number and the content of each field. After (`OTHER`, b"") there are no more."""
    place, end = 0, len(message)
    while place < end:
        tag = message[place]
        size, shift, place = 0, 0, place + 1
        while place < end and message[place] & 0x80 and shift < 28:
            size |= (message[place] & 0x7F) << shift
            shift, place = shift + 7, place + 1
        if place == end or message[place] & 0x80 or tag & 0x87 != 2:
            yield OTHER, b""
            return
        size |= message[place] << shift
        begin = place + 1
        place = begin + size
        if place > end:
            yield OTHER, b""
            return
        yield tag >> 3, message[begin:place]
