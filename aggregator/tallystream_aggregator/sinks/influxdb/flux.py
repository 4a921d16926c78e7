"""String literals of Flux, InfluxDB's query language. It has no client, so it is fast to import."""

from __future__ import annotations


def literal(text: str) -> str:
    """Return a string literal. Its escapes differ from those of JSON, and `${` would begin an interpolation."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("${", "\\${")
    return '"' + "".join(f"\\x{ord(char):02x}" if char < " " else char for char in escaped) + '"'
