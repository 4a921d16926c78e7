"""The shipper on a real broker, real Spark and real stores: every sum becomes its point, also after kills."""

from __future__ import annotations

import json
import signal
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from support.health import ask, base, internal_metrics
from support.kafka import committed, read_topic
from support.processes import kill_tree
from support.shipping import Sums, shipper, wait_shipped
from support.slow_store import SlowProxy, assert_points_wait_on_kafka
from support.stores import content, influx_bucket
from support.wait import wait_until
from tallystream_aggregator.sinks.stores import StoreSettings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.stores import Influx
    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_cli.servers.broker import KafkaBroker

LIMIT_S = 300.0
"""Seconds before a wait fails. A busy machine takes minutes to start Spark."""

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1500)]


@pytest.fixture(params=["local", "influxdb"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreSettings]:
    """An empty store."""
    if request.param == "local":
        yield StoreSettings.parse(f"local:{tmp_path / 'store.db'}", env={})
        return
    with influx_bucket(request.getfixturevalue("influxdb"), f"test {uuid.uuid4().hex}") as settings:
        yield settings


def _remove_last_commit(checkpoint: Path) -> Path:
    """Remove the commit of the last finished batch, as after a kill before the commit. Return its path."""
    commits = checkpoint / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    begun = [path.name for path in (checkpoint / "offsets").iterdir() if path.name.isdigit() and int(path.name) > last]
    for path in (commits / str(last), *(checkpoint / "offsets" / name for name in begun)):
        path.unlink()
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    return commits / str(last)


def test_every_sum_is_its_point_through_kills_and_a_takeover(
    broker: KafkaBroker, topics: Topics, topic_prefix: str, store: StoreSettings, tmp_path: Path
) -> None:
    """Killed with SIGKILL during a batch, and between write and commit, the shipper continues to the same points.

    On the checkpoint of a shipper that shipped only sums, events and rows are shipped from the start of their topics.
    Sums of a stale aggregator, sums of an epoch that the ledger does not have, and other records are not shipped. A
    point that the store rejects is a dead letter. SIGTERM ends it with exit code 0, and the group's committed offset is
    the end of the topic.
    """
    wanted = Sums(broker.bootstrap_servers, topics.agg)
    wanted.publish(3_000)
    few = ("--max-records", "300")
    with shipper(broker.bootstrap_servers, topic_prefix, tmp_path, store, *few, "--no-events") as process:
        first = wanted.rows
        wait_until(lambda: wanted.missing(store) <= first - 600, LIMIT_S, "two batches are in the store")
        kill_tree(process)
    wanted.epoch = 2  # another aggregator takes over; the old one still writes
    wanted.publish(500)
    wanted.publish(50, epoch=1)
    wanted.publish_forged(topics)
    wanted.publish(500)
    removed = _remove_last_commit(tmp_path / "checkpoint")
    others = wanted.publish_events_and_rows(topics)
    with shipper(broker.bootstrap_servers, topic_prefix, tmp_path, store, *few, "--rows") as process:
        wait_shipped(process, tmp_path, wanted, store)
        assert removed.exists()
        wanted.publish_noise()
        wanted.publish_rejected()
        wanted.publish(200)
        wanted.publish(20, epoch=1)
        wait_shipped(process, tmp_path, wanted, store)
        group = topic_prefix + "tallystream-shipper"
        wait_until(
            lambda: committed(broker.bootstrap_servers, group, topics.agg) == wanted.rows,
            LIMIT_S,
            "the group's offset is the end of the topic",
        )
        assert (tmp_path / "ready").exists()
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_S) == 0
    assert wanted.missing(store) == 0
    fields = ["text", "life", "partition", "offset", "count"]
    assert {measurement: content(store, measurement, fields) for measurement in others} == others
    letters = [json.loads(read.value or b"") for read in read_topic(broker.bootstrap_servers, topics.dead)]
    assert {(one["store"], json.loads(one["point"])["measurement"]) for one in letters} == {(store.spec, "too.large")}
    assert all("rejects a point of 'too.large' permanently: " in one["reason"] for one in letters)
    log = (tmp_path / "ship.log").read_text()
    assert "is not a sum and is not shipped" in log
    assert not store.token or store.token not in log


def test_an_outage_of_influxdb_loses_no_point(
    broker: KafkaBroker, topics: Topics, topic_prefix: str, tmp_path: Path
) -> None:
    """InfluxDB is killed while sums are shipped, and started again: every point is stored.

    During the outage the shipper is healthy and not ready, and SIGTERM ends it.
    """
    from support.influxd import InfluxServer, find_or_build

    found = find_or_build()
    if found.path is None:
        pytest.skip(found.reason)
    wanted = Sums(broker.bootstrap_servers, topics.agg)
    log = tmp_path / "ship.log"
    with InfluxServer(tmp_path / "influxdb", binary=found.path) as server:
        store = StoreSettings.parse(
            f"influxdb:{server.url}", token=server.token, org=server.org, bucket=server.bucket, env={}
        )
        wanted.publish(200)
        with shipper(broker.bootstrap_servers, topic_prefix, tmp_path, store, "--http-port", "0") as process:
            wait_shipped(process, tmp_path, wanted, store)
            url = base(log)
            wait_until(lambda: ask(url + "/readyz")[0] == 200, LIMIT_S, "it is ready")
            assert internal_metrics(url)["tallystream_ship_points_total"] == 200
            server.kill()
            wanted.publish(2_000)
            wait_until(lambda: "Points wait on Kafka" in log.read_text(), LIMIT_S, "the shipper detects the outage")
            assert json.loads(ask(url + "/readyz")[1])["reason"] == "waiting for the store"
            assert (ask(url + "/readyz")[0], ask(url + "/healthz")[0]) == (503, 200)
            assert internal_metrics(url)["tallystream_ship_store_unavailable"] == 1
            wanted.publish(500)
            assert process.poll() is None
            server.start()
            wait_shipped(process, tmp_path, wanted, store)
            wait_until(lambda: ask(url + "/readyz")[0] == 200, LIMIT_S, "it is ready again")
            server.kill()
            wanted.publish(100)
            wait_until(
                lambda: log.read_text().count("Points wait on Kafka") == 2, LIMIT_S, "it detects the second outage"
            )
            process.send_signal(signal.SIGTERM)
            assert process.wait(LIMIT_S) == 0
        with shipper(broker.bootstrap_servers, topic_prefix, tmp_path, store) as process:
            wait_until(
                lambda: log.read_text().count("Points wait on Kafka") >= 3, LIMIT_S, "it starts without the store"
            )
            server.start()
            wait_shipped(process, tmp_path, wanted, store)


def test_points_wait_on_kafka_while_a_store_is_slow(
    broker: KafkaBroker, topics: Topics, influxdb: Influx, tmp_path: Path
) -> None:
    """If a store takes a second for each write, no batch is read before the previous one is written.

    Memory does not grow. When the store is fast again, every point is written. `make faults` has 5 s for a write.
    """
    with (
        influx_bucket(influxdb, f"test {uuid.uuid4().hex}") as store,
        SlowProxy(influxdb.url, 1.0) as proxy,
    ):
        slow = replace(store, where=proxy.url)
        sizes = {"rows": 8_000, "batch": 1_000, "slow": 4_000, "growth_mib": 16, "padding": 8_000}
        assert_points_wait_on_kafka(broker, topics, tmp_path, store=slow, proxy=proxy, **sizes)


def test_wrong_settings_of_the_store_end_it_immediately(
    broker: KafkaBroker, topic_prefix: str, tmp_path: Path, influxdb: Influx
) -> None:
    """For a bucket that does not exist, or a wrong token, there is one error without the token, and exit code 2."""
    for token, bucket, name in ((influxdb.token, "no such bucket", "--bucket"), ("wrong-token", "b", "INFLUXDB_TOKEN")):
        store = StoreSettings.parse(f"influxdb:{influxdb.url}", token=token, org=influxdb.org, bucket=bucket, env={})
        with shipper(broker.bootstrap_servers, topic_prefix, tmp_path, store) as process:
            assert process.wait(LIMIT_S) == 2
        last = (tmp_path / "ship.log").read_text().splitlines()[-1]
        assert name in last
        assert token not in (tmp_path / "ship.log").read_text()
