"""A topic with one partition and the table that reads it, for tests of single rules."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from support.steps import Published, run
from tallystream.ulid import new_ulid
from tallystream_aggregator import sums
from tallystream_aggregator.table import Record, State, Table, TableSettings
from tallystream_aggregator.table.sum_tags import SumTags

if TYPE_CHECKING:
    from collections.abc import Iterator

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
BEGIN_MS = 1_700_000_000_000
FIRST, SECOND = (new_ulid(BEGIN_MS) for _ in range(2))


def counter(count: int, name: str = "n", **more: Any) -> dict[str, Any]:
    """Return a counter in the form of the record."""
    return {"type": "counter", "name": name, "count": count, **more}


def gauge(value: Any, name: str = "g") -> dict[str, Any]:
    """Return a gauge in the form of the record."""
    return {"type": "gauge", "name": name, "value": value}


class Topic:
    """A topic with one partition and the table that reads it. `at` is the broker's clock, in ms after the beginning."""

    def __init__(self, settings: TableSettings | None = None, sum_tags: SumTags | None = None) -> None:
        self.table = Table(State(sum_tags=sum_tags or SumTags()), settings)
        self.offset = -1
        self.changes = Published([], [], [], [], [], [])
        self._waiting: list[Record] | None = None

    def append(self, key: bytes, value: bytes | None, at: int = 0) -> Topic:
        """Append one record and run a step with it."""
        self.offset += 1
        record = Record("metrics", 0, self.offset, BEGIN_MS + at, key, value)
        if self._waiting is None:
            self.changes = run(self.table, [record])
        else:
            self._waiting.append(record)
        return self

    @contextmanager
    def one_step(self) -> Iterator[None]:
        """Apply what is appended within the block in one step at its end."""
        self._waiting = records = list[Record]()
        yield
        self._waiting = None
        self.changes = run(self.table, records)

    def snapshot(self, *metrics: Any, at: int = 0, key: bytes = b"app-1", **header: Any) -> Topic:
        """Append a snapshot of the first life. `header` overrides fields of its header."""
        plain = {"v": 1, "app": "shop", "life": FIRST, "part": 0, "seq": 1, "ts": 0, "every_ms": 1000, "final": False}
        return self.append(key, json.dumps({**plain, **header, "metrics": metrics}).encode(), at)

    def short(self, value: int, at: int = 0) -> Topic:
        """Append a counter in the short form."""
        return self.append(b"script", json.dumps({"name": "n", "value": value}).encode(), at)

    def sum(self, name: str = "n") -> sums.Sum:
        """Return the sum that the last step published for the metric `name`, decoded from its bytes."""
        (found,) = [total for total in self.changes.totals if total.metric[1] == name]
        return sums.decode(found.value())

    def reasons(self) -> list[str]:
        """Return the reasons of the dead letters of the last step."""
        return [letter.reason for letter in self.changes.dead]

    def kinds(self) -> list[str]:
        """Return the kinds of the last step's events."""
        return [event.kind for event in self.changes.events]
