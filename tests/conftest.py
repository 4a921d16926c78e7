"""Real servers for the tests, started once for each session on free ports."""

from __future__ import annotations

import gc
import os
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from hypothesis import settings

from support import fuzz
from support.stores import Influx
from tallystream_aggregator.kafka.topics import Topics
from tallystream_cli.servers.broker import KafkaBroker

# A command's internal metrics would add records to topics whose records a test counts.
os.environ["TALLYSTREAM_NO_OWN_METRICS"] = "true"

# A JVM of a test lives for seconds, in which its optimizing compiler takes more time than it saves.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

BROKER = os.environ.get("TALLYSTREAM_TESTS_BROKER")
"""The set of jars of the brokers, as in `make brokers`; by default that of the commands."""

# No test fails because a busy machine is slow.
settings.register_profile("tests", deadline=None, max_examples=round(100 * fuzz.FACTOR))
settings.load_profile("tests")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort files with a longer limit first, so that a run on two processes does not end with the longest file."""
    limits = (item.get_closest_marker("timeout") for item in items)
    order = {item: 0 if limit is None else -limit.args[0] for item, limit in zip(items, limits, strict=True)}
    items.sort(key=order.__getitem__)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run in CI, or with TALLYSTREAM_NOTHING_SKIPPED, that skipped a test; the summary lists the reasons."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    required = os.environ.get("CI") or os.environ.get("TALLYSTREAM_NOTHING_SKIPPED")
    if required and session.exitstatus == pytest.ExitCode.OK and reporter and reporter.stats.get("skipped"):
        reporter.write_line("in CI a skipped test is a failure: this run has failed", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(autouse=True, scope="session")
def broker_version() -> None:
    """Start brokers of the version that `TALLYSTREAM_TESTS_BROKER` names."""
    if BROKER:
        KafkaBroker.jars = BROKER


@pytest.fixture(autouse=True)
def signal_handlers() -> Iterator[None]:
    """Give each test Python's default handlers of SIGINT and SIGTERM."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A real Kafka broker that all tests share; each test uses its own topic prefix."""
    with KafkaBroker(tmp_path_factory.mktemp("broker")) as running:
        yield running
        gc.collect()  # a client that is still alive would log that the broker is gone


@pytest.fixture(scope="session")
def influxdb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Influx]:
    """A real InfluxDB 2.x that all tests share: that of INFLUXDB_URL and its variables, or one that is started here.

    Each test uses its own measurements.
    """
    from support.built import or_skip
    from support.influxd import InfluxServer, find_or_build
    from support.stores import Influx
    from tallystream_aggregator.sinks.stores import StoreSettings

    if os.environ.get("INFLUXDB_URL"):
        settings = StoreSettings.parse("influxdb")
        yield Influx(settings.where, settings.token, settings.org, settings.bucket)
        return
    with InfluxServer(tmp_path_factory.mktemp("influxdb"), binary=or_skip(find_or_build)) as server:
        yield Influx(server.url, server.token, server.org, server.bucket)


@pytest.fixture(scope="session")
def collector_binary() -> Path:
    """The OpenTelemetry Collector from the cache, or a new build of it."""
    from support.built import or_skip
    from support.collector import find_or_build

    return or_skip(find_or_build)


@pytest.fixture
def admin(broker: KafkaBroker) -> AdminClient:
    """An admin client of the shared broker."""
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})


@pytest.fixture
def topic_prefix() -> str:
    """A topic prefix that no other test uses."""
    return f"t{uuid.uuid4().hex[:8]}-"


@pytest.fixture
def topics(admin: AdminClient, topic_prefix: str) -> Topics:
    """The topics of a system, under this test's own prefix."""
    from tallystream_aggregator.kafka.topics import create_topics

    topics = Topics(topic_prefix)
    create_topics(admin, topics)
    return topics
