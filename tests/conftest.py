"""Real servers for the tests: started once a session, on free ports, ended by their own process IDs."""

from __future__ import annotations

import os
import signal
import uuid
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from support.influx import Influx
from support.skips import pytest_sessionfinish, pytest_terminal_summary  # noqa: F401 (hooks: pytest finds them here)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka.admin import AdminClient

    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_cli.servers.broker import KafkaBroker

# An aggregator's own figures come at any moment: what a test counts in a topic would change while it does.
os.environ["TALLYSTREAM_NO_OWN_METRICS"] = "true"

# An example may take long on a busy machine: no test fails because it is slow.
settings.register_profile("tests", deadline=None)
settings.load_profile("tests")


@pytest.fixture(autouse=True)
def signal_handlers() -> Iterator[None]:
    """Every test begins with Python's own handlers of SIGINT and SIGTERM, whatever the one before has installed."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A real Kafka broker that all tests share: each keeps to its own topic prefix."""
    from tallystream_cli.servers.broker import KafkaBroker

    with KafkaBroker(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture(scope="session")
def influxdb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Influx]:
    """A real InfluxDB 2.x that all tests share: INFLUXDB_URL's (with its token, organization and bucket), or our own.

    Each test keeps to measurements of its own.
    """
    from support.influxd import InfluxServer, find_or_build
    from tallystream_aggregator.sinks.stores import StoreSettings

    if os.environ.get("INFLUXDB_URL"):
        given = StoreSettings.parse("influxdb")
        yield Influx(given.where, given.token, given.org, given.bucket)
        return
    found = find_or_build()
    if found.path is None:
        pytest.skip(found.reason)
    with InfluxServer(tmp_path_factory.mktemp("influxdb"), binary=found.path) as server:
        yield Influx(server.url, server.token, server.org, server.bucket)


@pytest.fixture
def admin(broker: KafkaBroker) -> AdminClient:
    """An admin client of the shared broker."""
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": broker.bootstrap_servers})


@pytest.fixture
def topic_prefix() -> str:
    """A prefix that no other test has."""
    return f"t{uuid.uuid4().hex[:8]}-"


@pytest.fixture
def topics(admin: AdminClient, topic_prefix: str) -> Topics:
    """The six topics of this test alone."""
    from tallystream_aggregator.kafka.topics import Topics, create_topics

    made = Topics(topic_prefix)
    create_topics(admin, made)
    return made
