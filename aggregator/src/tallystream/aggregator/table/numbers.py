"""Find the value in many records of the short form at once, and tell which of them differ in numbers alone.

A text is taken for what it looks like here: what it means is for tallystream.aggregator.table.shapes to prove.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from numpy.typing import NDArray

VALUE = b'"value":'
MOST_DIGITS = 18
"""What any 64-bit integer holds."""

_PADDING = b"\0" * (len(VALUE) + MOST_DIGITS + 2)
_ZERO, _SPACE, _COLON, _QUOTE, _BRACE = b'0 :"}'


class Numbers(NamedTuple):
    """The values of records, by record: `value`, and the index in `texts` of what stands around it.

    In a text all digits of the value are 0, and so are those of a last field that is a whole number: a time, mostly.
    Where `found` is false there is no such value, and the two others say nothing.
    """

    value: NDArray[np.int64]
    text: NDArray[np.int64]
    texts: list[bytes]
    found: NDArray[np.bool_]


def numbers(values: pa.BinaryArray) -> Numbers:
    """Return what stands after the first `"value":` of each text, of which some may be null."""
    count = len(values)
    at = pc.fill_null(pc.find_substring(values, VALUE), -1).to_numpy().astype(np.int64)
    found = at >= 0
    bounds = np.frombuffer(values.buffers()[1], np.int32, count + 1, values.offset * 4).astype(np.int64)
    # A copy to write to, and room to look beyond the last one's end.
    raw = values.buffers()[2]
    text = np.frombuffer(bytearray((raw.to_pybytes() if raw is not None else b"") + _PADDING), np.uint8)
    begin = bounds[:-1] + at + len(VALUE)
    begin += text[begin] == _SPACE
    value, length = _read(text, begin, found, 1)
    found &= (length > 0) & (length <= MOST_DIGITS) & ((length == 1) | (text[begin] != _ZERO))

    last = np.maximum(bounds[1:] - 2, 0)
    ended = found & (text[last + 1] == _BRACE)
    _, more = _read(text, last, ended & (last >= begin + length), -1)
    field = last - more
    colon = field - (text[field] == _SPACE)
    named = (more > 0) & (text[colon] == _COLON) & (text[colon - 1] == _QUOTE) & (colon - 1 >= begin + length)
    found &= ~named | ((more <= MOST_DIGITS) & ((more == 1) | (text[field + 1] != _ZERO)))

    _blank(text, begin, np.where(found, length, 0))
    _blank(text, field + 1, np.where(found & named, more, 0))
    around = pa.Array.from_buffers(
        pa.binary(), count, [None, values.buffers()[1], pa.py_buffer(text)], offset=values.offset
    )
    coded = around.dictionary_encode()
    return Numbers(value, coded.indices.to_numpy().astype(np.int64), coded.dictionary.to_pylist(), found)


def _read(
    text: NDArray[np.uint8], begin: NDArray[np.int64], reading: NDArray[np.bool_], step: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the numbers that begin where said, read in steps of 1, and how many digits they have, in either direction.

    One more than `MOST_DIGITS` stands for any more.
    """
    at, reading = begin.copy(), reading.copy()
    number, length = np.zeros(len(at), np.int64), np.zeros(len(at), np.int64)
    for _ in range(MOST_DIGITS + 1):
        digit = text[at] - np.uint8(_ZERO)
        reading &= digit < 10
        if not reading.any():
            break
        np.copyto(number, number * 10 + digit, where=reading)
        length += reading
        at += step
    return number, length


def _blank(text: NDArray[np.uint8], begin: NDArray[np.int64], length: NDArray[np.int64]) -> None:
    for digit in range(int(length.max(initial=0))):
        text[begin[length > digit] + digit] = _ZERO
