"""The query string of a request to the HTTP API."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from tallystream_aggregator.times import parse_time_ms

if TYPE_CHECKING:
    from collections.abc import Sequence


MAX_CHARACTERS = 1_025
"""The longest value: the name of an app, a slash, and that of a metric. A pattern takes the square of its length."""


class QueryError(ValueError):
    """A query string that can't be answered. The message names the parameter and says what to do."""


def parameters(query: str, known: Sequence[str]) -> dict[str, str]:
    """Return the parameters by name. An empty one counts as not given, and of a repeated one the last counts.

    Raises:
        QueryError: a parameter is not `known`, or longer than any name.
    """
    found = dict(parse_qsl(query, keep_blank_values=True))
    for name, text in found.items():
        if len(text) > MAX_CHARACTERS:
            raise QueryError(f"a parameter has {len(text)} characters; at most {MAX_CHARACTERS} are a name")
        if name not in known:
            raise QueryError(f"{name!r} is no parameter of this path, which has {', '.join(known) or 'none'}")
    return {name: text for name, text in found.items() if text}


def at_ms(found: dict[str, str]) -> int | None:
    """Return the time of the parameter `at` in epoch ms; None if it is not given.

    Raises:
        QueryError: it is not a time.
    """
    text = found.get("at")
    try:
        return None if text is None else parse_time_ms(text)
    except ValueError:
        raise QueryError(f"at: {text!r} is not a time; give one in UTC, as in 2026-11-20T03:12") from None
