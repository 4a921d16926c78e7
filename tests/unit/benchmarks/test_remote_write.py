"""The receiver of remote write reads requests as the specification describes them."""

from __future__ import annotations

import struct

import pyarrow as pa

from benchmarks.alternatives.remote_write import samples, varint


def field(number: int, data: bytes) -> bytes:
    """Return a protobuf field of bytes shorter than 128."""
    return bytes([number << 3 | 2, len(data)]) + data


def series(name: bytes, *values: float) -> bytes:
    """Return a TimeSeries with two labels. Its samples have a time in ms."""
    labels = [field(1, field(1, b"job") + field(2, b"x")), field(1, field(1, b"__name__") + field(2, name))]
    points = [field(2, b"\x09" + struct.pack("<d", value) + b"\x10\x96\x01") for value in values]
    return field(1, b"".join(labels + points))


def test_every_sample_of_every_series_is_read() -> None:
    """The samples are in the order of the request and have the name of their series. Other labels are ignored."""
    raw = series(b"a_total", 1.5, 2.5) + field(3, b"metadata") + series(b"b_total", 7.0)
    body = pa.compress(raw, codec="snappy", asbytes=True)
    assert list(samples(body)) == [("a_total", 1.5), ("a_total", 2.5), ("b_total", 7.0)]


def test_a_varint_of_several_bytes_is_read() -> None:
    """The example is that of the specification: 150 is two bytes."""
    assert varint(b"\x00\x96\x01", 1) == (150, 3)
