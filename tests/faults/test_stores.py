"""The stores at full size, `make faults`: unavailable for ten minutes, and five seconds for a write.

TALLYSTREAM_FAULTS_SHARE reduces the size, as in test_long.py.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.aggregator import Aggregator
from support.built import or_skip
from support.exactness import assert_exact
from support.faults import PATIENCE, pause
from support.fleet import Fleet
from support.influxd import InfluxServer, find_or_build
from support.kafka import committed, end_offsets, read_topic
from support.levels import Readable, promised
from support.shipping import shipper
from support.slow_store import SlowProxy, assert_points_wait_on_kafka
from support.wait import wait_until
from tallystream_aggregator import sums
from tallystream_aggregator.kafka.topics import Topics
from tallystream_aggregator.shipping.points import point
from tallystream_aggregator.sinks.base import Point
from tallystream_aggregator.sinks.stores import StoreSettings, open_sink
from tallystream_cli.servers.broker import KafkaBroker

SHARE = float(os.environ.get("TALLYSTREAM_FAULTS_SHARE", "1"))
DRAINED_S = 120.0 * PATIENCE
COMMITTED_S = 30.0 * PATIENCE
pytestmark = [pytest.mark.faults, pytest.mark.timeout(3600)]


@pytest.fixture
def own_influxdb(tmp_path: Path) -> Iterator[InfluxServer]:
    """An InfluxDB that only this test uses and may kill."""
    with InfluxServer(tmp_path / "influxdb", binary=or_skip(find_or_build)) as server:
        yield server


def influx_store(server: InfluxServer, url: str = "") -> StoreSettings:
    """Return the settings of a server, or of a proxy in front of it."""
    return StoreSettings("influxdb", url or server.url, token=server.token, org=server.org, bucket=server.bucket)


def test_influxdb_is_down_for_ten_minutes(
    broker: KafkaBroker, topics: Topics, tmp_path: Path, own_influxdb: InfluxServer
) -> None:
    """While InfluxDB is down, sums on Kafka continue. Afterwards all points are written in two minutes.

    InfluxDB has every row of `metrics-agg`.
    """
    outage_s, servers, store = 600 * SHARE, broker.bootstrap_servers, influx_store(own_influxdb)
    fleets = [Fleet(servers, topics.metrics, number, app=f"app-{number}") for number in range(5)]

    def shipped() -> int:
        return committed(servers, topics.prefix + "influxdb", topics.agg)

    with ExitStack() as stack:
        aggregator = stack.enter_context(Aggregator(servers, topics.prefix, tmp_path / "aggregate"))
        aggregator.folder.mkdir()
        aggregator.start().wait_ready()
        stack.enter_context(shipper(servers, topics.prefix, tmp_path, store, "--group", "influxdb", timeout=60))
        with ExitStack() as publishing:
            for fleet in fleets:
                publishing.enter_context(fleet.publishing())
            wait_until(lambda: shipped() >= 50, 300, "the store is written to")
            own_influxdb.kill()
            slowest = commit_through_the_outage(aggregator, topics, outage_s)
            end = end_offsets(servers, topics.agg)[0]
            behind = end - shipped()
            own_influxdb.start()
            drained_s = wait_until(lambda: shipped() >= end, DRAINED_S, "the waiting points are written")
        assert aggregator.restarts == 0
        assert_exact(broker, topics)
        assert aggregator.stop() == 0, aggregator.output()
        end = end_offsets(servers, topics.agg)[0]
        wait_until(lambda: shipped() >= end, DRAINED_S, "all points are written")
    points = [point(sums.decode(record.value or b"")) for record in read_topic(servers, topics.agg)]
    require_all(Readable(store), points)
    print(  # noqa: T201
        f"down for {outage_s:.0f} s: {behind} rows behind, written in {drained_s:.1f} s; "
        f"sums were committed within {slowest:.1f} s during the outage; {len(points)} points"
    )


def commit_through_the_outage(aggregator: Aggregator, topics: Topics, outage_s: float) -> float:
    """Return the longest time, in seconds, that published records took to be committed during the outage."""
    slowest, began = 0.0, time.monotonic()
    while time.monotonic() - began < outage_s:
        due = end_offsets(aggregator.servers, topics.metrics)
        committed_s = aggregator.wait_committed(topics.metrics, due, COMMITTED_S, "sums continue in the outage")
        slowest = max(slowest, committed_s)
        pause(min(5.0, outage_s))
    return slowest


def require_all(target: Readable, points: list[Point]) -> None:
    """Fail if the store does not get these points."""
    wanted, sink = promised(target.level, points), open_sink(target.settings)
    wait_until(lambda: target.holds(sink, wanted), 60, f"{len(points)} points are stored")
    sink.close()


def test_a_write_takes_five_seconds(
    broker: KafkaBroker, topics: Topics, tmp_path: Path, own_influxdb: InfluxServer
) -> None:
    """A hundred thousand rows wait on Kafka, not in memory, and every one is written."""
    with SlowProxy(own_influxdb.url, 5.0) as proxy:
        rows, store = max(20_000, round(100_000 * SHARE)), influx_store(own_influxdb, proxy.url)
        assert_points_wait_on_kafka(broker, topics, tmp_path, store=store, proxy=proxy, rows=rows, slow=20_000)
