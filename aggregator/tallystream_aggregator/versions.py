"""The version of a record of `metrics-agg` or `metrics-table`. Of the records of a key, the highest version counts.

A row has its version at the end of its value. A deletion has no value, so its version is in a header.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

Version = tuple[int, int]
"""(epoch of the writer, batch)"""

HEADER = "writer"
"""The name of the header of a deletion. Its value is a JSON array of epoch and batch."""

UNKNOWN: Version = (0, 0)
"""The version of a deletion without the header, lower than that of every row. No aggregator wrote that deletion."""

_ROW = re.compile(rb'"epoch":(\d{1,19})(?:,"batch":(\d{1,19}))?\}$')  # batch 0 is left out
_DELETION = re.compile(rb"\[(\d{1,19}),(\d{1,19})\]")


def version_of(value: bytes) -> Version | None:
    """Return the version at the end of a row without parsing the rest, or None if the row does not end with one."""
    found = _ROW.search(value, max(0, len(value) - 64))
    return None if found is None else (int(found[1]), int(found[2] or 0))


def deletion_version(headers: Iterable[tuple[str, bytes | str | None]] | None) -> Version:
    """Return the version of a deletion with these headers, or `UNKNOWN` if they do not have one."""
    for name, value in headers or ():
        if name == HEADER and isinstance(value, bytes) and (found := _DELETION.fullmatch(value)):
            return int(found[1]), int(found[2])
    return UNKNOWN


def deletion_header(version: Version) -> bytes:
    """Return the value of the header of a deletion with this version."""
    return b"[%d,%d]" % version
