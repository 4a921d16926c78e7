"""Tell which metric records of the short form are of by the text around their value: read once for many of a kind."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tallystream.aggregator.table.inputs import read_value
from tallystream.aggregator.table.numbers import VALUE
from tallystream.reporter.record import ShortForm, identity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tallystream.reporter.record import Identity

MOST = 100_000
"""Texts that are remembered."""

AT_FIRST = 10_000
"""Texts that are learned, though they are of no use later; more, where a few records each are."""

_PARTS = re.compile(rb"(.*?%b ?)0+(?:(.*[^0-9])0+\}|(.*))" % VALUE, re.DOTALL)
"""What `tallystream.aggregator.table.numbers` leaves of a record: zeros are any number."""


class Shapes:
    """Remembers which metric a text is of. A text is learned by reading it four times, so only if that pays."""

    def __init__(self) -> None:
        self._metrics: dict[bytes, Identity | None] = {}
        self._learned = self._used = 0

    def metrics(self, texts: Sequence[bytes], counts: Sequence[int]) -> list[Identity | None]:
        """Return the counter of each text, of which there are so many records; None is for others, or for no record.

        None, too, where many texts turned out to be of one record each: reading these is to read that record.
        """
        return [self._metric(text, count) if count else None for text, count in zip(texts, counts, strict=True)]

    def _metric(self, text: bytes, count: int) -> Identity | None:
        if text not in self._metrics:
            if self._learned >= AT_FIRST + self._used // 8:
                return None
            if len(self._metrics) >= MOST:
                self._metrics.clear()
            self._learned += 1
            self._metrics[text] = metric_of(text)
        else:
            self._used += count
        return self._metrics[text]


def metric_of(text: bytes) -> Identity | None:
    """Return the metric of the short form that a text is of, whatever whole numbers stand for its zeros.

    Where a JSON text ends, and what of it is a number, does not depend on which digits a number has: two of each show
    what all of them are. After `"value":`, and before a last brace, no JSON text is within a string.
    """
    parts = _PARTS.fullmatch(text)
    if parts is None:
        return None
    before, between, rest = parts.groups()
    found = set()
    for value in (1, 2):
        for other in (b"1", b"2"):
            after = between + other + b"}" if rest is None else rest
            message = read_value(b"%b%d%b" % (before, value, after), 1)
            if not isinstance(message, ShortForm) or message.value != value:
                return None
            found.add(identity(message.name, message.type, message.tags))
    return found.pop() if len(found) == 1 else None
