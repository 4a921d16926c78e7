"""Points in a real Prometheus, and through a real OpenTelemetry Collector."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import prometheus
from support.collector import Collector
from support.hostile_text import HOSTILE
from support.levels import VALUES, Collected, require, sum_point
from support.stores import NOW_MS
from support.wait import wait_until
from tallystream_aggregator.sinks.base import Point, SinkUnavailableError, filled
from tallystream_aggregator.sinks.prometheus.sink import PrometheusSink

pytestmark = pytest.mark.integration

LIMIT_S = 60.0


@pytest.fixture(scope="module")
def sink() -> Iterator[PrometheusSink]:
    """A sink that is set up and listens."""
    opened = PrometheusSink("127.0.0.1", 0)
    opened.setup()
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def server(sink: PrometheusSink, tmp_path_factory: pytest.TempPathFactory) -> Iterator[prometheus.Prometheus]:
    """A Prometheus that scrapes the sink every second."""
    if why := prometheus.missing():
        pytest.skip(why)
    with prometheus.Prometheus(tmp_path_factory.mktemp("prometheus"), f"127.0.0.1:{sink.port}") as running:
        yield running


def test_a_real_prometheus_finds_every_sum(sink: PrometheusSink, server: prometheus.Prometheus) -> None:
    """Special characters may be in all texts: it reads each sample, and a sum can be queried by its name and tags.

    While the newest sums are unknown, the target is down and has no series.
    """
    wait_until(lambda: server.target()[0] == "down", LIMIT_S, "the target is down")
    assert "503" in server.target()[1]
    points = [sum_point(kind, 2, NOW_MS, f"of {kind}") for kind in VALUES]
    points += [sum_point("counter", n, NOW_MS, "hostile", {"k": text}) for n, text in enumerate(HOSTILE)]
    points += [sum_point("counter", n, NOW_MS, "keys", {text: "v"}) for n, text in enumerate(HOSTILE)]
    points += [sum_point("counter", n, NOW_MS, text) for n, text in enumerate(HOSTILE)]
    assert sink.write(points) == []
    sink.caught_up(time.monotonic())
    wait_until(lambda: server.query("tallystream_sums"), LIMIT_S, "the sums are scraped")
    assert server.target() == ("up", "")
    assert server.query("tallystream_sums")[0][1] == len(points)
    assert {labels["k"]: count for labels, count in server.query("hostile_total")} == {
        filled(text): n for n, text in enumerate(HOSTILE)
    }
    assert sorted(count for _, count in server.query("keys_total")) == list(range(len(HOSTILE)))
    of_names = server.query('{__name__=~".*_total", name!~"hostile|keys|of.*"}')
    assert {labels["name"]: count for labels, count in of_names} == {filled(text): n for n, text in enumerate(HOSTILE)}


@pytest.fixture
def collector(collector_binary: Path, tmp_path: Path) -> Iterator[Collector]:
    """A Collector for only this test."""
    with Collector(tmp_path / "otelcol", collector_binary) as running:
        yield running


def counters(*counts: int) -> list[Point]:
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
