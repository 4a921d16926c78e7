"""Escape characters that are not printable in text from Kafka, a store or the network before a terminal shows it.

The name of a consumer group may have escape sequences, newlines and characters that change the writing direction. The
same characters are escaped as by `repr`.
"""

from __future__ import annotations

import json


def printable(text: str, *, keep: str = "") -> str:
    """Return `text` with all characters escaped that are not printable, except those in `keep`."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in keep else _escape(one) for one in text)


def printable_json(text: str) -> str:
    """Return a JSON text with JSON's escapes for all characters that are not printable. Its value does not change."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in text)


def _escape(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")
