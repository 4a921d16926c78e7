"""Rows as CSV, with exact values. Pure."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def csv_text(rows: Sequence[Mapping[str, object]]) -> str:
    """Return the rows as CSV (RFC 4180), with the names of the first row's values as header.

    Numbers have all their digits. A text that a spreadsheet would take for a formula begins with an apostrophe.
    """
    out = io.StringIO()
    names = list(rows[0]) if rows else []
    writer = csv.writer(out)
    writer.writerow([_cell(name) for name in names])
    writer.writerows([_cell(row.get(name)) for name in names] for row in rows)
    return out.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str) and value.lstrip(" ").startswith(_FORMULA):
        return f"'{value}"
    return "" if value is None else value
