"""Who wrote a record of `metrics-agg` or `metrics-table`, and in which batch: of a key's records the highest counts.

A row ends with its writer. A deletion has no value, so it carries its writer in a header.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

Version = tuple[int, int]
"""(epoch, batch)"""

HEADER = "writer"
"""The header of a deletion: epoch and batch as a JSON array."""

UNKNOWN: Version = (0, 0)
"""The version of a deletion without the header, below that of every row: no aggregator wrote it."""

_ROW = re.compile(rb'"epoch":(\d{1,19})(?:,"batch":(\d{1,19}))?\}$')  # batch 0 is left out
_DELETION = re.compile(rb"\[(\d{1,19}),(\d{1,19})\]")


def version_of(value: bytes) -> Version | None:
    """Return the writer of a row without reading the rest of it; None where the row does not end with one."""
    found = _ROW.search(value, max(0, len(value) - 64))
    return None if found is None else (int(found[1]), int(found[2] or 0))


def deletion_version(headers: Iterable[tuple[str, bytes | str | None]] | None) -> Version:
    """Return the writer of a deletion with these headers, `UNKNOWN` where they do not name one."""
    for name, value in headers or ():
        if name == HEADER and isinstance(value, bytes) and (found := _DELETION.fullmatch(value)):
            return int(found[1]), int(found[2])
    return UNKNOWN


def deletion_header(version: Version) -> bytes:
    """Return the value of the header of a deletion."""
    return b"[%d,%d]" % version
