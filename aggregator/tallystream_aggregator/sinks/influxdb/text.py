"""Encodes text for InfluxDB's line protocol: what the protocol can't carry or would change is percent-encoded.

Line protocol can't have a newline in a name or tag, drops empty tag values, can't have a backslash at the end of a
value, and reserves some tag keys. A plain name is not changed.
"""

from __future__ import annotations

from urllib.parse import unquote

_ENCODED = {character: f"%{character:02X}" for character in (*range(0x20), 0x7F, ord("%"), ord("\\"))}
EMPTY = "%"
"""The code of the empty text. No other text has this code, because each % in a text becomes %25."""

RESERVED_KEYS = frozenset({"time", "result", "table"})
"""`time` is refused as a tag key. The other two are columns of every query result."""


def encode_name(text: str) -> str:
    """Return the name of a measurement, or the key of a tag or field, as it is stored."""
    if text in RESERVED_KEYS or text[:1] in {"_", "#"}:
        return f"%{ord(text[0]):02X}" + text[1:].translate(_ENCODED)
    return encode_value(text)


def encode_value(text: str) -> str:
    """Return the value of a tag or a text field as it is stored."""
    return text.translate(_ENCODED) if text else EMPTY


def decode(stored: str) -> str:
    """Return the original text: the inverse of `encode_name` and `encode_value`."""
    return "" if stored == EMPTY else unquote(stored)
