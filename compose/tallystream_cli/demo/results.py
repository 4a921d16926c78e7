"""Waiting for the sums to catch up, and gathering every number of the final table from its own source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream_aggregator.sinks.stores import open_reader
from tallystream_cli.demo import journal, stored
from tallystream_cli.demo import topic as kafka
from tallystream_cli.demo.compare import Findings
from tallystream_cli.demo.replay import replay
from tallystream_cli.demo.sums import PROCESSED, positions_covered

if TYPE_CHECKING:
    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_aggregator.sinks.stores import StoreSettings
    from tallystream_cli.demo.scenario import Choreography
    from tallystream_cli.demo.sums import Watch

AGGREGATOR, SHIPPER = "tallystream-aggregator", "tallystream-shipper"


def catch_up(play: Choreography, bootstrap_servers: str, topics: Topics, watch: Watch) -> None:
    """Wait until the aggregator has summed the whole of `metrics`, and the shipper has shipped the sums.

    Raises:
        StuckError: one of them did not get there.
    """
    _wait(play, bootstrap_servers, AGGREGATOR, topics.metrics)
    end = _wait(play, bootstrap_servers, SHIPPER, topics.agg)
    play.until(lambda: watch.position >= end, f"{topics.agg} is read to offset {end}")


def _wait(play: Choreography, bootstrap_servers: str, group: str, topic: str) -> int:
    consumer = kafka.reader(bootstrap_servers, group)
    try:
        end = kafka.ends(consumer, topic)[0]
        play.until(lambda: kafka.committed(consumer, topic)[0] >= end, f"{group} is at offset {end} of {topic}")
    finally:
        consumer.close()
    return end


def gather(
    play: Choreography, bootstrap_servers: str, topics: Topics, watch: Watch, store: StoreSettings, *, sent: int
) -> Findings:
    """Return all that was found, after `catch_up`.

    Raises:
        ReadError, SinkUnavailableError, JournalError: a source can't be read.
    """
    aggregate = watch.sums.values()
    reader = open_reader(store)
    try:
        in_store = stored.read(reader, aggregate)
    finally:
        reader.close()
    replayed = replay(kafka.read(bootstrap_servers, topics.metrics))
    by_instance = {one.instance: one.batches() for one in play.apps}
    batches = [batch for some in by_instance.values() for batch in some]
    consumer = kafka.reader(bootstrap_servers)
    try:
        dead = kafka.ends(consumer, topics.dead)[0]
    finally:
        consumer.close()
    return Findings(
        sent=sent,
        aggregate_processed=watch.sums.count(),
        journal_processed=journal.processed(batches),
        journal_twice=journal.twice(batches),
        journal_covered=journal.covered(batches),
        journal_delays=sum(batch.line.delays for batch in batches),
        journal_delay_sum=sum(batch.line.delay_sum for batch in batches),
        journal_batches=len(batches),
        held=journal.held(batches),
        covered=positions_covered(aggregate),
        lives=replayed.lives("app-2"),
        dips=len(watch.sums.dips),
        dead=dead,
        acknowledged={instance: journal.acknowledged(some) for instance, some in by_instance.items()},
        replayed=replayed.counts(PROCESSED),
        aggregate=aggregate,
        store=in_store,
        replay=replayed.sums(),
    )
