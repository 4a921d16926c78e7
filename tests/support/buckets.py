"""The buckets of sketches in the format of docs/sketches.md."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import msgspec

from tallystream import record


def buckets(offset: int, *counts: int, width: int | None = None) -> list[dict[str, Any]]:
    """Return consecutive buckets as plain values. Counts have the smallest width that all fit in, if none is given."""
    size = width or next(size for size in (1, 2, 4, 8) if max(counts, default=0) < 256**size)
    packed = b"".join(count.to_bytes(size, "little") for count in counts)
    return [{"offset": offset, "width": size, "counts": b64encode(packed).decode()}]


def encoded(*runs: list[dict[str, Any]]) -> tuple[record.Buckets, ...]:
    """Return such buckets as the structs of a record."""
    return msgspec.convert([run for each in runs for run in each], tuple[record.Buckets, ...])
