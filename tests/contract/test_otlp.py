"""The OTLP sink with a real OpenTelemetry Collector: kills, and an unavailable destination.

Tests for all sinks are in test_sink_levels.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.collector import Collector, find_or_build
from support.levels import Collected, require, sum_point
from support.stores import NOW_MS
from tallystream_aggregator.sinks.base import Point, SinkUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.integration


@pytest.fixture
def binary() -> Path:
    """The Collector's binary from the cache, or a new build of it."""
    found = find_or_build()
    if found.path is None:
        pytest.skip(found.reason)
    return found.path


@pytest.fixture
def collector(binary: Path, tmp_path: Path) -> Iterator[Collector]:
    """A Collector for only this test."""
    with Collector(tmp_path / "otelcol", binary) as running:
        yield running


def counters(*counts: int) -> list[Point]:
    """Return the points of one counter."""
    return [sum_point("counter", count, NOW_MS + count) for count in counts]


def test_a_collector_that_is_killed_gets_everything_when_it_is_back(collector: Collector) -> None:
    """While it is down, calls raise SinkUnavailableError with its URL. The same sink then continues without a loss."""
    target = Collected(collector)
    sink = target.open()
    sink.setup()
    sink.write(counters(*range(40)))
    collector.kill()
    for call in (sink.setup, lambda: sink.write(counters(*range(40, 60)))):
        with pytest.raises(SinkUnavailableError, match=f"OTLP {collector.url}/v1/metrics: "):
            call()
    collector.start()
    sink.write(counters(*range(40, 100)))
    require(target, sink, counters(*range(100)))
    sink.close()


@pytest.mark.parametrize("status", [429, 503])
def test_an_unavailable_destination_of_the_collector_makes_the_sink_unavailable(
    collector: Collector, status: int
) -> None:
    """Without a queue, the Collector returns the status of its destination. The points can be written again later."""
    target = Collected(collector)
    sink = target.open()
    collector.destination.respond = lambda _: status
    with pytest.raises(SinkUnavailableError, match=f"{status} .*{collector.destination.url}"):
        sink.write(counters(1, 2))
    collector.destination.respond = lambda _: 200
    assert sink.write(counters(1, 2)) == []
    require(target, sink, counters(1, 2))
    sink.close()
