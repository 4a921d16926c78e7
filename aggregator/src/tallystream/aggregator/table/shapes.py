"""Tell counters of the short form by the text around their value, without reading the record: for many of a kind."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tallystream.aggregator.table.inputs import read_value
from tallystream.reporter.record import ShortForm, identity

if TYPE_CHECKING:
    from tallystream.reporter.record import Identity

MAX_SHAPES = 100_000
VALUE = b'"value":'
Shape = bytes | tuple[bytes, bytes, bytes]
"""The text before the value; where it is spelled otherwise than `"value":1}`, that around it too."""


SPELLED = re.compile(rb"( ?)([1-9][0-9]{0,17}|0)([ ,}].*)", re.DOTALL)
"""What may follow: a space, the digits, and the rest."""


class Shapes:
    """Remembers which metric a text is of."""

    def __init__(self) -> None:
        self._metrics: dict[Shape, Identity | None] = {}

    def metric(self, shape: Shape, before: bytes, after: bytes) -> Identity | None:
        """Return the metric whose value is any whole number between two texts, None where they are of no such record.

        `shape` stands for the two.
        """
        if shape not in self._metrics:
            if len(self._metrics) >= MAX_SHAPES:
                self._metrics.clear()
            self._metrics[shape] = _metric_of(before, after)
        return self._metrics[shape]


def _metric_of(before: bytes, after: bytes) -> Identity | None:
    """Return the metric of the short form whose value is any whole number between two texts, None for another record.

    Where a JSON text ends up does not depend on which digits a number has: two of them show what all of them are.
    """
    one, two = (read_value(before + digit + after, 1) for digit in (b"1", b"2"))
    if not isinstance(one, ShortForm) or not isinstance(two, ShortForm) or (one.value, two.value) != (1, 2):
        return None
    return identity(one.name, one.type, one.tags)
