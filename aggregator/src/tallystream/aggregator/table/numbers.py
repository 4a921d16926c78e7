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
_ZERO, _SPACE, _POINT = b"0 ."


class Numbers(NamedTuple):
    """The values of records, by record: `value`, and the index in `texts` of what stands around it.

    In a text all digits of the value are 0, and so are those before its last byte: of a time, mostly.
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
    length = _length(text, begin, found, 1)
    found &= (length > 0) & (length <= MOST_DIGITS) & ((length == 1) | (text[begin] != _ZERO))

    last = bounds[1:] - 2
    more = _length(text, last, found, -1)
    # A number may begin with a zero behind its point alone.
    found &= (more <= 1) | (text[last - more + 1] != _ZERO) | (text[last - more] == _POINT)

    length[~found] = more[~found] = 0
    value = _value(text, begin, length)
    _blank(text, begin, length)
    _blank(text, last - more + 1, more)
    around = pa.Array.from_buffers(
        pa.binary(), count, [None, values.buffers()[1], pa.py_buffer(text)], offset=values.offset
    )
    coded = around.dictionary_encode()
    return Numbers(value, coded.indices.to_numpy().astype(np.int64), coded.dictionary.to_pylist(), found)


def _length(
    text: NDArray[np.uint8], begin: NDArray[np.int64], among: NDArray[np.bool_], step: int
) -> NDArray[np.int64]:
    """Return how many digits there are from `begin` on, in steps of 1 or -1; if too many, `MOST_DIGITS` + 1."""
    at, reading, length = begin.copy(), among.copy(), np.zeros(len(begin), np.int64)
    for _ in range(MOST_DIGITS + 1):
        reading &= text[at] - np.uint8(_ZERO) < 10
        if not reading.any():
            break
        length += reading
        at += step
    return length


def _value(text: NDArray[np.uint8], begin: NDArray[np.int64], length: NDArray[np.int64]) -> NDArray[np.int64]:
    value = np.zeros(len(begin), np.int64)
    for digit in range(int(length.max(initial=0))):
        np.copyto(value, value * 10 + (text[begin + digit] - np.uint8(_ZERO)), where=length > digit)
    return value


def _blank(text: NDArray[np.uint8], begin: NDArray[np.int64], length: NDArray[np.int64]) -> None:
    for digit in range(int(length.max(initial=0))):
        text[begin[length > digit] + digit] = _ZERO
