"""`tallystream ship` to a store of only the newest sums: a consumer reads `metrics-agg` from its beginning, no Spark.

Such a store loses everything at a restart, so a checkpoint would be of no use. The compacted topic has the newest sum
of every metric.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from tallystream.errors import ConfigError
from tallystream_aggregator.health import Health, HealthSettings
from tallystream_aggregator.kafka import clients
from tallystream_aggregator.kafka.auth import check_login
from tallystream_aggregator.kafka.groups import GroupCommitter
from tallystream_aggregator.kafka.ledger import epochs_of
from tallystream_aggregator.kafka.topics import Topics, create_topics
from tallystream_aggregator.shipping.latest import LatestShipper, LatestSums
from tallystream_aggregator.shutdown import StopRequest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tallystream_aggregator.sinks.prometheus.sink import PrometheusSink


@dataclass(frozen=True, slots=True)
class ShipLatestSettings:
    """Settings of `tallystream ship` for a store of only the newest sums. `kafka` are librdkafka options.

    `ready_file` is created when the newest sums are shown for the first time. The topic prefix comes before `group`.
    """

    bootstrap_servers: str
    topic_prefix: str = ""
    group: str = "tallystream-shipper"
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)
    health: HealthSettings = field(default_factory=HealthSettings)
    ready_file: Path | None = None

    def __post_init__(self) -> None:
        if not self.bootstrap_servers:
            raise ConfigError("--bootstrap-servers", self.bootstrap_servers, "name a broker, as in localhost:9092")


def run(settings: ShipLatestSettings, sink: PrometheusSink) -> int:
    """Show the newest sums until SIGTERM or SIGINT, then return 0.

    Delivery: only the newest sums. No sum is shown before the end of the topic was reached, or while that end could not
    be read for half a minute. So an old sum is never shown as the newest.

    Raises:
        ConfigError: a setting can't be used, or the sink can't listen on its address.
        TallystreamError: the broker can't be reached, or rejects a request.
    """
    stop = StopRequest().install()
    topics = Topics(settings.topic_prefix)
    kafka: dict[str, Any] = {**settings.kafka, "bootstrap.servers": settings.bootstrap_servers}
    group = settings.topic_prefix + settings.group
    with ExitStack() as stack:
        health = stack.enter_context(Health("ship", settings.health))
        stack.callback(sink.close)
        sink.setup()
        with clients.broker_errors(settings.bootstrap_servers):
            check_login(kafka)
            create_topics(clients.admin(kafka), topics)
            committer = GroupCommitter(kafka, group)
            stack.callback(committer.close)
            consumer = clients.reading_consumer(kafka, group)
            stack.callback(consumer.close)
            partition = TopicPartition(topics.agg, 0, OFFSET_BEGINNING)
            consumer.assign([partition])
            health.report(settings.bootstrap_servers, topics.metrics, settings.kafka)
            health.status.run()
            latest = LatestSums(epochs_of(topics.ledger, kafka, timeout=5))
            shipper = LatestShipper(consumer, partition, committer, sink, latest, health=health)
            while not stop.is_set():
                shipper.step()
                if shipper.shown and settings.ready_file is not None:
                    settings.ready_file.touch()
    return 0
