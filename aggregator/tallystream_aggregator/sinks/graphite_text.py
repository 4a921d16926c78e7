"""Text in Graphite's paths: what they can't carry, or would change, is percent-encoded, reversibly.

Source: "Carbon" and "Graphite Tag Support" (graphite.readthedocs.io): a line is path, value and time between blanks, a
path ends with its tags as `;tag=value`; carbon refuses the empty tag, `!`, `^` and `~` at places, and makes a file of
the path.
"""

from __future__ import annotations

import re
import string
from urllib.parse import quote, unquote

from tallystream.errors import ConfigError

PLAIN = string.ascii_letters + string.digits + "_-:/@+"
"""What is kept. All else is encoded, as bytes of UTF-8: what has a meaning in Graphite's functions, too."""

EMPTY = "%"
"""An empty text: no other text encodes to this, since each % in one becomes %25."""

_PREFIX = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")


def encode_value(text: str) -> str:
    """Return a tag's key or value as it is stored; a dot stays."""
    return _quoted(text, PLAIN + ".") or EMPTY


def encode_path(text: str) -> str:
    """Return a metric's name as the elements of a path: a dot that would make an empty element is encoded."""
    encoded = _quoted(text, PLAIN.replace("/", "").replace("+", "") + ".")
    encoded = re.sub(r"(?<=\.)\.|^\.|\.$", "%2E", encoded)
    return encoded or EMPTY


def decode(stored: str) -> str:
    """Return the text that was stored: the inverse of both."""
    return "" if stored == EMPTY else unquote(stored)


def require_prefix(prefix: str) -> None:
    """Return where the prefix is one, or empty.

    Raises:
        ConfigError: it is not.
    """
    if prefix and not _PREFIX.fullmatch(prefix):
        raise ConfigError(
            "--graphite-prefix", prefix, "use letters, digits, hyphens and underscores between single dots"
        )


def _quoted(text: str, safe: str) -> str:
    # quote() keeps what RFC 3986 calls unreserved, of which ~ may not begin a value in Graphite.
    return quote(text, safe=safe).replace("~", "%7E")
