"""Text that comes from Kafka, a store or the network, for a terminal: what is not for the eye is shown escaped.

A group's name may hold escape sequences, newlines and signs that turn the direction of writing. What `repr` escapes is
escaped here, in the same way.
"""

from __future__ import annotations

import json


def printable(text: str, *, keep: str = "") -> str:
    """Return `text` with escapes in the place of all that is not printable, but for the letters in `keep`."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in keep else _escape(one) for one in text)


def printable_json(text: str) -> str:
    """Return a JSON text with JSON's escapes in the place of all that is not printable: it says the same."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in text)


def _escape(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")
