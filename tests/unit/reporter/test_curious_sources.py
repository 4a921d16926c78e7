"""Sources whose code reads the registry while they are read."""

from __future__ import annotations

import time
from threading import Thread
from typing import TYPE_CHECKING

from tallystream.bridges.base import Reading
from tallystream.bridges.sources import FAILED
from tallystream.record import Gauge
from tallystream.testing import find

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tallystream import MetricRegistry


class Curious:
    """A source that reads the registry while it is read, as a callback of prometheus_client may do."""

    kind = "curious"

    def __init__(self, registry: MetricRegistry, seconds: float = 0.0) -> None:
        self._registry, self._seconds = registry, seconds

    def read(self) -> Iterator[Reading]:
        """Return the number of metrics that a snapshot has meanwhile."""
        time.sleep(self._seconds)
        yield Reading(Gauge(name="g", value=len(self._registry.snapshot())))


def snapshots(registry: MetricRegistry, number: int) -> list[list[str]]:
    """Take snapshots in so many threads at once, and return the names of the metrics of each."""
    found: list[list[str]] = []
    threads = [
        Thread(target=lambda: found.append([metric.name for metric in registry.snapshot()]), daemon=True)
        for _ in range(number)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    return found


def test_a_source_may_read_the_registry(registry: MetricRegistry) -> None:
    """The snapshot that it takes has the registry's own metrics, and no source's."""
    registry.counter("own").inc()
    registry.add_source(Curious(registry))
    assert snapshots(registry, 1) == [["own", FAILED, "g"]]
    assert find(registry, "g") == Gauge(name="g", value=2)


def test_sources_that_read_the_registry_do_not_wait_for_each_other(registry: MetricRegistry) -> None:
    """Two threads that read two of them at the same time both end."""
    for prefix in "ab":
        registry.add_source(Curious(registry, seconds=0.05), prefix=prefix)
    assert snapshots(registry, 2) == [[FAILED, "a.g", "b.g"]] * 2
