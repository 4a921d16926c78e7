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
    """All types of metrics can be queried by name, app and tags, with special characters in all texts.

    While the newest sums are unknown, the target is down and has no series.
    """
    wait_until(lambda: server.target()[0] == "down", LIMIT_S, "the target is down")
    assert "503" in server.target()[1]
    points = [sum_point(kind, 1, NOW_MS, f"of.{kind}", {"topic": "x"}) for kind in VALUES]
    points += [sum_point(kind, 2, NOW_MS, f"of {kind}") for kind in VALUES]
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
    expected = {
        'of_counter_total{app="orders", topic="x"}': 1,
        'of_counter_total{name="of counter"}': 2,
        'of_gauge{topic="x"}': 0.5,
        'of_gauge_max{topic="x"}': 2,
        'of_updown_number{topic="x"}': 2,
        'of_histogram{topic="x",quantile="0.999"}': 0.9,
        'of_histogram_sum{topic="x"} / of_histogram_count': 4.5,
        'of_timer_seconds{topic="x",quantile="0.99"}': 0.25,
        'of_timer_m1_rate{topic="x"}': 1,
        'of_meter_total{topic="x"}': 1,
        'of_position_total{topic="x"} - of_position_start': 14,
        'tallystream_living_instances{name="of.counter",app="orders"}': 1,
        'tallystream_retired_lives{name="of.counter"}': 1,
        'time() - tallystream_sum_time_seconds{name="of.counter"} > bool 1800': 1,
    }
    assert {query: [value for _, value in server.query(query)] for query in expected} == {
        query: [pytest.approx(value)] for query, value in expected.items()
    }


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
