"""Text in InfluxDB's line protocol: what it can't carry, or would change, is percent-encoded, reversibly.

Line protocol has no way to write a newline in a name or tag, drops empty tag values, can't end one with a backslash,
and keeps some tag keys to itself. A plain name stays as it is.
"""

from __future__ import annotations

from urllib.parse import unquote

_ENCODED = {character: f"%{character:02X}" for character in (*range(0x20), 0x7F, ord("%"), ord("\\"))}
EMPTY = "%"
"""An empty text: no other text encodes to this, since each % in one becomes %25."""

RESERVED_KEYS = frozenset({"time", "result", "table"})
"""`time` is refused as a tag key; the other two are columns that every answer to a query has."""


def encode_name(text: str) -> str:
    """Return a measurement's name, or a tag's or field's key, as it is stored."""
    if text in RESERVED_KEYS or text[:1] in {"_", "#"}:
        return f"%{ord(text[0]):02X}" + text[1:].translate(_ENCODED)
    return encode_value(text)


def encode_value(text: str) -> str:
    """Return a tag's value as it is stored."""
    return text.translate(_ENCODED) if text else EMPTY


def decode(stored: str) -> str:
    """Return the text that was stored: the inverse of both."""
    return "" if stored == EMPTY else unquote(stored)
