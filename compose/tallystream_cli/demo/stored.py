"""The sums as the store has them: the newest point of every metric that the aggregate has."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tallystream_cli.demo.replay import FIELDS, Key, Values

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tallystream_aggregator.sinks.base import PointReader

DAY_MS = 86_400_000


def read(store: PointReader, keys: Iterable[Key]) -> dict[Key, Values]:
    """Return, for each key, the fields of its newest point in the store; a key without a point is left out.

    Raises:
        SinkUnavailableError: the store can't be read.
    """
    now = int(time.time() * 1000)
    found: dict[Key, Values] = {}
    for key in keys:
        app, name, type_, tags = key
        wanted = {**dict(tags), "app": app, "metric_type": type_}
        for series in store.read(name, FIELDS[type_], start_ms=now - DAY_MS, end_ms=now + DAY_MS, tags=wanted):
            value = series.values[-1]
            if dict(series.tags) == wanted and isinstance(value, int | float):
                found.setdefault(key, {})[series.field] = value
    return found
