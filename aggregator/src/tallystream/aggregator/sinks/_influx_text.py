"""Text in InfluxDB's line protocol: what it can't carry, or would change, is percent-encoded, reversibly.

Line protocol has no way to write a newline in a name or tag, drops empty tag values, can't end one with a backslash,
and keeps some tag keys to itself. A plain name stays as it is.
"""

from __future__ import annotations

from urllib.parse import unquote

_ENCODED = {character: f"%{ord(character):02X}" for character in "%\\\n\r\t\x00\v\f"}
_TABLE = str.maketrans(_ENCODED)
EMPTY = "%00%00"
"""An empty tag value: no text encodes to this but two NULs, which no Point may hold."""

RESERVED_KEYS = frozenset({"time", "result", "table"})
"""`time` is refused as a tag key; the other two are columns that every answer to a query has."""


def encode_name(text: str) -> str:
    """Return a measurement's name, or a tag's or field's key, as it is stored."""
    stored = text.translate(_TABLE)
    if text in RESERVED_KEYS or text[:1] in {"_", "#"}:
        stored = f"%{ord(text[0]):02X}" + stored[1:]
    return stored


def encode_value(text: str) -> str:
    """Return a tag's value as it is stored."""
    return text.translate(_TABLE) if text else EMPTY


def decode(stored: str) -> str:
    """Return the text that was stored: the inverse of both."""
    return "" if stored == EMPTY else unquote(stored)
