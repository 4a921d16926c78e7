"""`tallystream ship`: writes sums, events and rows to a store, in order, while it has the lease of its group."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tallystream.errors import ConfigError
from tallystream_aggregator.health import Health, HealthSettings
from tallystream_aggregator.kafka import clients
from tallystream_aggregator.kafka.auth import check_login
from tallystream_aggregator.kafka.lease import Lease
from tallystream_aggregator.kafka.topic_selection import Selection
from tallystream_aggregator.kafka.topics import Topics, create_topics
from tallystream_aggregator.shipping.dead_letters import DeadLetters
from tallystream_aggregator.shipping.points import PointMapper
from tallystream_aggregator.shipping.shipper import NoLease, Shipper
from tallystream_aggregator.shipping.tail import Tail
from tallystream_aggregator.shutdown import StopRequest
from tallystream_aggregator.sinks.base import SinkUnavailableError
from tallystream_aggregator.sinks.prometheus.sink import PrometheusSink
from tallystream_aggregator.sinks.stores import StoreSettings, open_sink
from tallystream_aggregator.stream.broker import Place
from tallystream_aggregator.stream.kafka.broker import KafkaBroker
from tallystream_aggregator.stream.kafka.calls import Timeouts

if TYPE_CHECKING:
    from pathlib import Path

    from tallystream.process.signals import SignalSafeEvent
    from tallystream_aggregator.sinks.base import Sink

log = logging.getLogger(__name__)

GROUP = "tallystream-shipper"
"""The default consumer group. The topic prefix comes before it."""

_CONSUMER = {
    "queued.max.messages.kbytes": "16384",  # what a slow store has not taken yet waits on Kafka, and not in memory
    "fetch.message.max.bytes": "1048576",
    "fetch.wait.max.ms": "500",  # an idle shipper asks twice a second; a broker answers at once when there are records
}


@dataclass(frozen=True, slots=True)
class ShipSettings:
    """Settings of `tallystream ship`.

    `rows` says whether the rows of lives on `metrics-table` are shipped, too. A store that only takes numbers gets no
    events. Each store needs its own `group`. Of two shippers of a group, one stands by. One of only the newest sums
    gets no rows and no events, and has no group. `ready_file` is created as soon as the shipper works.
    """

    cluster: clients.Cluster
    store: StoreSettings
    group: str = GROUP
    rows: bool = False
    health: HealthSettings = field(default_factory=HealthSettings)
    ready_file: Path | None = None

    def __post_init__(self) -> None:
        if self.store.kind == "prometheus" and self.rows:
            raise ConfigError("--rows", True, "Prometheus gets only sums: ship rows to another store")

    def read(self, topics: Topics) -> list[str]:
        """Return the topics to read."""
        events = [] if self.store.numbers_only else [topics.events]
        return [topics.agg, *events, *([topics.table] if self.rows else [])]


def run(settings: ShipSettings) -> int:
    """Ship until SIGTERM or SIGINT, then return 0. Delivery and errors are those of `ship`."""
    ship(settings, StopRequest().install())
    return 0


def ship(settings: ShipSettings, stop: SignalSafeEvent, *, within: Health | None = None) -> None:
    """Ship until `stop` is set. `within` is the health of the command that ships, if that is not `tallystream ship`.

    Delivery: every sum on `metrics-agg` becomes its point, at least once and in order within a series, and so do events
    and rows if the settings include them. A store that is unavailable delays points and loses none. A store of only the
    newest sums gets those from the beginning of the topic at each start, and shows none before its end is reached.
    There is no standby then: every shipper shows the sums.

    Raises:
        ConfigError: a setting can't be used, or the store rejects it.
        TallystreamError: the broker can't be reached, or forbids something.
    """
    cluster = settings.cluster
    topics, kafka = Topics(cluster.topic_prefix), cluster.options
    with ExitStack() as stack:
        health = stack.enter_context(Health("ship", settings.health, within=within))
        stack.enter_context(clients.broker_errors(cluster.bootstrap_servers))
        check_login(kafka)
        read = settings.read(topics)
        create_topics(clients.admin(kafka), topics, only={*read, topics.dead, topics.metrics})
        sink = open_sink(settings.store)
        stack.callback(sink.close)
        _set_up(sink)  # first: a shipper with wrong settings must not take the lease of another
        timeouts = Timeouts(query_s=2.0, stopped=stop.is_set)
        broker = KafkaBroker({**_CONSUMER, **kafka}, Selection(topics.agg), clients.READING, timeouts)

        def places() -> list[Place]:
            return [Place(topic, number) for topic in read for number in broker.partitions_of(topic)]

        lease: Lease | NoLease = NoLease()
        letters: DeadLetters | None = None
        if not isinstance(sink, PrometheusSink):
            lease = Lease(topics.agg, kafka, prefix=topics.prefix, group=settings.group, others=read[1:])
            letters = DeadLetters(topics.dead, kafka, settings.store.spec)
        tail, mapper = Tail(broker, places), PointMapper(topics)
        shipper = Shipper(lease, tail, mapper, sink, letters, stop=stop, health=health)
        stack.callback(shipper.close)
        health.report(cluster.bootstrap_servers, topics.metrics, cluster.kafka)
        log.info("shipping %s to %s", ", ".join(read), settings.store.spec)
        ready = settings.ready_file
        while not stop.is_set():
            if shipper.step() and ready is not None:
                ready.touch()
                ready = None


def _set_up(sink: Sink) -> None:
    """Set the store up if it is available, so that wrong settings are reported at once."""
    try:
        sink.setup()
    except SinkUnavailableError as error:
        log.warning("%s Points wait on Kafka and are written when it is available.", error)
