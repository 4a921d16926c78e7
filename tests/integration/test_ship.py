"""The shipper on a real broker with real stores: every sum arrives, also after kills."""

from __future__ import annotations

import json
import signal
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from support.health import ask, base, internal_metrics
from support.kafka import committed, end_offsets, read_topic
from support.levels import exposed, samples
from support.processes import kill_tree
from support.shipping import Sums, shipper, wait_shipped
from support.slow_store import SlowProxy, assert_points_wait_on_kafka
from support.stores import NOW_MS, Influx, content, influx_bucket
from support.wait import wait_until
from tallystream_aggregator.kafka.clients import READING
from tallystream_aggregator.kafka.topic_selection import Selection
from tallystream_aggregator.kafka.topics import Topics, create_topics
from tallystream_aggregator.sinks.stores import StoreSettings
from tallystream_aggregator.stream.kafka.broker import KafkaBroker as Access
from tallystream_cli.servers.broker import KafkaBroker

LIMIT_S = 300.0
"""Seconds before a wait fails."""

PROMETHEUS = StoreSettings.parse("prometheus:0", env={})

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


@pytest.fixture(params=["local", "influxdb"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreSettings]:
    """An empty store."""
    if request.param == "local":
        yield StoreSettings.parse(f"local:{tmp_path / 'store.db'}", env={})
        return
    with influx_bucket(request.getfixturevalue("influxdb"), f"test {uuid.uuid4().hex}") as settings:
        yield settings


def _committed_to_the_end(broker: KafkaBroker, topic_prefix: str, topic: str) -> None:
    group = topic_prefix + "tallystream-shipper"

    def done() -> bool:
        return committed(broker.bootstrap_servers, group, topic) == end_offsets(broker.bootstrap_servers, topic)[0]

    wait_until(done, LIMIT_S, f"the group's offset is the end of {topic}")


def test_every_sum_is_its_point_through_a_kill(
    broker: KafkaBroker, topics: Topics, topic_prefix: str, store: StoreSettings, tmp_path: Path
) -> None:
    """Killed with SIGKILL while it writes, the shipper continues to the same points.

    In the group of a shipper that shipped no rows, these are shipped from the start of their topic. Sums of a
    transaction that is aborted and other records are not shipped. A point that the store rejects is a dead letter.
    SIGTERM ends it with exit code 0, and the group's committed offset is the end of the topic, also after a marker.
    """
    wanted = Sums(broker.bootstrap_servers, topics.agg, padding=8_000)
    wanted.publish(3_000)
    with shipper(broker.bootstrap_servers, topic_prefix, tmp_path, store) as process:
        first = wanted.rows
        wait_until(lambda: wanted.missing(store) < first, LIMIT_S, "some points are in the store", poll=0.01)
        kill_tree(process)
    wanted.publish(500)
    wanted.publish_aborted(50)
    wanted.publish(500)
    others = wanted.publish_events_and_rows(topics)
    with shipper(broker.bootstrap_servers, topic_prefix, tmp_path, store, "--rows") as process:
        wait_shipped(process, tmp_path, wanted, store)
        wanted.publish_noise()
        wanted.publish_rejected()
        wanted.publish(200)
        wanted.publish_aborted(20)
        wait_shipped(process, tmp_path, wanted, store)
        for topic in (topics.agg, topics.events, topics.table):
            _committed_to_the_end(broker, topic_prefix, topic)
        assert (tmp_path / "ready").exists()
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_S) == 0
    assert wanted.missing(store) == 0
    fields = ["text", "life", "partition", "offset", "count"]
    assert {measurement: content(store, measurement, fields) for measurement in others} == others
    assert content(store, "aborted", ["count"]) == {}
    letters = [json.loads(read.value or b"") for read in read_topic(broker.bootstrap_servers, topics.dead)]
    assert {(one["store"], json.loads(one["point"])["measurement"]) for one in letters} == {(store.spec, "too.large")}
    assert all("rejects a point of 'too.large' permanently: " in one["reason"] for one in letters)
    log = (tmp_path / "ship.log").read_text()
    assert "can't be read and is not shipped" in log
    assert not store.token or store.token not in log


def test_of_two_shippers_of_a_group_one_stands_by_and_takes_over(
    broker: KafkaBroker, topics: Topics, topic_prefix: str, tmp_path: Path
) -> None:
    """Nothing is lost if the working one is killed, paused and continued, or stopped. The other one is healthy."""
    store = StoreSettings.parse(f"local:{tmp_path / 'store.db'}", env={})
    wanted = Sums(broker.bootstrap_servers, topics.agg)
    folders = [tmp_path / name for name in ("a", "b")]
    for folder in folders:
        folder.mkdir()
    start = partial(shipper, broker.bootstrap_servers, topic_prefix)

    def working() -> int:
        """Return which of the two is ready. The other one must be healthy."""
        found: list[int] = []

        def decided() -> bool:
            if not all("health is on" in (folder / "ship.log").read_text() for folder in folders):
                return False  # one of them is still starting
            urls = [base(folder / "ship.log") for folder in folders]
            ready = [ask(url + "/readyz") for url in urls]
            found[:] = [number for number, (status, _) in enumerate(ready) if status == 200]
            waiting = [json.loads(text).get("reason") for status, text in ready if status != 200]
            return (len(found), waiting) == (1, ["standing by"])

        wait_until(decided, LIMIT_S, "one of the two works")
        assert [ask(base(folder / "ship.log") + "/healthz")[0] for folder in folders] == [200, 200]
        return found[0]

    with (
        start(folders[0], store, "--http-port", "0") as one,
        start(folders[1], store, "--http-port", "0") as other,
    ):
        processes = [one, other]
        wanted.publish(300)
        wait_shipped(one, folders[0], wanted, store)
        first = working()
        processes[first].send_signal(signal.SIGSTOP)
        wanted.publish(300)
        wait_shipped(processes[1 - first], folders[1 - first], wanted, store)
        processes[first].send_signal(signal.SIGCONT)
        wanted.publish(300)
        first = working()
        kill_tree(processes[first])
        wanted.publish(300)
        wait_shipped(processes[1 - first], folders[1 - first], wanted, store)
        processes[1 - first].send_signal(signal.SIGTERM)
        assert processes[1 - first].wait(LIMIT_S) == 0
    assert wanted.missing(store) == 0
    _committed_to_the_end(broker, topic_prefix, topics.agg)


@pytest.mark.parametrize("running", [True, False], ids=["running", "stopped"])
def test_a_topic_that_is_created_again_is_shipped_from_its_beginning(
    broker: KafkaBroker, admin: AdminClient, topics: Topics, topic_prefix: str, tmp_path: Path, *, running: bool
) -> None:
    """It may be longer than the old one, and the shipper may be running."""
    store = StoreSettings.parse(f"local:{tmp_path / 'store.db'}", env={})
    old = Sums(broker.bootstrap_servers, topics.agg)
    old.publish(100)
    access = Access({"bootstrap.servers": broker.bootstrap_servers}, Selection(topics.agg), READING)

    def created_again() -> bool:
        try:
            create_topics(admin, topics)
        except KafkaException:
            return False
        return access.topic_ids([topics.agg]).get(topics.agg, before) != before

    with ExitStack() as stack:
        process = stack.enter_context(shipper(broker.bootstrap_servers, topic_prefix, tmp_path, store))
        wait_shipped(process, tmp_path, old, store)
        _committed_to_the_end(broker, topic_prefix, topics.agg)
        before = access.topic_ids([topics.agg])[topics.agg]
        if not running:
            stack.close()
        admin.delete_topics([topics.agg])[topics.agg].result()
        wait_until(created_again, LIMIT_S, "the topic is created again")
        new = Sums(broker.bootstrap_servers, topics.agg, begin_ms=NOW_MS + 1_000_000)
        new.publish(500)
        if not running:
            process = stack.enter_context(shipper(broker.bootstrap_servers, topic_prefix, tmp_path, store))
        both = Sums(broker.bootstrap_servers, topics.agg)
        both.points = {
            name: {
                series: {**old.points[name].get(series, {}), **new.points[name].get(series, {})}
                for series in old.points[name].keys() | new.points[name].keys()
            }
            for name in old.points
        }
        wait_shipped(process, tmp_path, both, store)
        _committed_to_the_end(broker, topic_prefix, topics.agg)


def test_points_wait_on_kafka_while_a_store_is_slow(
    broker: KafkaBroker, topics: Topics, influxdb: Influx, tmp_path: Path
) -> None:
    """If a store takes a second for each write, no records are read before the previous ones are written.

    Memory does not grow. When the store is fast again, every point is written. `make faults` has 5 s for a write.
    """
    with (
        influx_bucket(influxdb, f"test {uuid.uuid4().hex}") as store,
        SlowProxy(influxdb.url, 1.0) as proxy,
    ):
        slow = replace(store, where=proxy.url)
        sizes = {"rows": 8_000, "slow": 4_000, "growth_mib": 40, "padding": 8_000}
        assert_points_wait_on_kafka(broker, topics, tmp_path, store=slow, proxy=proxy, **sizes)


def _address(process: subprocess.Popen[bytes], log: Path, starts: int) -> str:
    def served() -> bool:
        assert process.poll() is None, log.read_text()
        return log.read_text().count("sums are served at ") == starts

    wait_until(served, LIMIT_S, "the sink listens")
    return log.read_text().rpartition("sums are served at http://")[2].partition("/metrics")[0]


def _first(address: str, log: Path) -> str:
    """Return the first response with status 200. All earlier ones must have status 503."""
    found: list[str] = []

    def answered() -> bool:
        status, text = ask(f"http://{address}/metrics")
        if status == 200:
            found.append(text)
        else:
            assert (status, text) == (503, "the newest sums are not known yet\n"), log.read_text()
        return bool(found)

    wait_until(answered, LIMIT_S, "the sums are shown", poll=0.005)
    return found[0]


def test_the_newest_sums_are_shown_after_a_kill_too(
    broker: KafkaBroker, topics: Topics, topic_prefix: str, tmp_path: Path
) -> None:
    """After a start and after a kill -9, the first response with sums has the newest sum of every metric.

    Sums of a transaction that is aborted and other records are not shown. The health check is ready, and SIGTERM ends
    it with exit code 0.
    """
    wanted = Sums(broker.bootstrap_servers, topics.agg)
    wanted.publish(20_000)
    log = tmp_path / "ship.log"
    health = ("--http-port", "0")
    with shipper(broker.bootstrap_servers, topic_prefix, tmp_path, PROMETHEUS, *health) as process:
        address = _address(process, log, 1)
        assert samples(_first(address, log)) == exposed(wanted.latest())
        wanted.publish(300)
        wait_until(lambda: samples(_first(address, log)) == exposed(wanted.latest()), LIMIT_S, "later sums are shown")
        kill_tree(process)
    wanted.publish(2_000)
    wanted.publish_aborted(50)
    wanted.publish_noise()
    with shipper(broker.bootstrap_servers, topic_prefix, tmp_path, PROMETHEUS, *health) as process:
        address = _address(process, log, 2)
        assert samples(_first(address, log)) == exposed(wanted.latest())
        url = base(log)
        assert ask(url + "/readyz")[0] == 200
        shown = internal_metrics(url)
        assert shown["tallystream_ship_unreadable_total"] >= 1
        assert (tmp_path / "ready").exists()
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_S) == 0
