"""The places of the fields in a message of protobuf (protobuf.dev/programming-guides/encoding)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""The wire types."""

OTHER = -1
"""The wire type that stands for a field that is not read here: after it there are no more."""


def fields_of(message: bytes, place: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield each field of the message between two places of `message`: its number, its wire type, begin and end.

    Fields with numbers above 15 are not read, nor those after the end.
    """
    while place < end:
        tag, begin = message[place], place + 1
        kind = tag & 0x87  # a tag of several bytes has the highest bit
        if kind == BYTES:
            size = shift = 0
            while begin < end and message[begin] & 0x80 and shift < 28:
                size |= (message[begin] & 0x7F) << shift
                begin, shift = begin + 1, shift + 7
            if begin == end or message[begin] & 0x80:
                kind = OTHER
            else:
                size |= message[begin] << shift
                begin += 1
                place = begin + size
        elif kind == FIXED64:
            place = begin + 8
        elif kind == FIXED32:
            place = begin + 4
        elif kind == VARINT:
            place = begin
            while place < end and message[place] & 0x80:
                place += 1
            place += 1
        else:
            kind = OTHER
        if kind == OTHER or place > end:
            yield 0, OTHER, begin, begin
            return
        yield tag >> 3, kind, begin, place
