"""A FastStream application on aiokafka whose subscriber acknowledges only what was counted.

    python docs/examples/faststream_app.py localhost:9092 flights flights-1

Reads the topic `flights` as a consumer group, one process or many, until SIGTERM or Ctrl-C. The third argument is the
instance ID, which differs for each process. Requires tallystream and faststream[kafka].
"""

from __future__ import annotations

import asyncio
import os
import sys

from faststream import AckPolicy, FastStream
from faststream.kafka import KafkaBroker, KafkaMessage

from tallystream import ConsumerProgress, KafkaReporter, MetricRegistry


async def main(servers: str, topic: str, instance: str) -> None:
    """Run the application. The reporter starts before it, and sends its last report after it."""
    registry = MetricRegistry("flights")
    progress = ConsumerProgress(registry, "flights.processed")
    batches = registry.timer("flights.batch")
    metrics = os.environ.get("TALLYSTREAM_TOPIC_PREFIX", "") + "metrics"
    reporter = KafkaReporter(registry, bootstrap_servers=servers, instance=instance, topic=metrics)
    broker = KafkaBroker(servers)

    @broker.subscriber(
        topic,
        batch=True,
        max_records=500,
        group_id=topic + "-processing",
        group_instance_id=instance,  # a static member: after a crash it gets its partitions back immediately
        auto_offset_reset="earliest",
        ack_policy=AckPolicy.MANUAL,
    )
    async def process(bodies: list[bytes], message: KafkaMessage) -> None:
        raw = message.raw_message
        records = raw if isinstance(raw, tuple) else (raw,)
        progress.taken(records)
        await asyncio.to_thread(reporter.report_now, timeout=10)  # so that a kill during the work leaves a bound
        with batches.time():
            await handle(bodies)
        progress.processed(records)
        # If it is not acknowledged, the report of the next batch has these counts, and its commit these offsets.
        if await asyncio.to_thread(reporter.report_now, timeout=10):
            await message.ack()

    with reporter:
        await FastStream(broker).run()


async def handle(bodies: list[bytes]) -> int:
    """Do the application's work on one batch."""
    await asyncio.sleep(0)
    return sum(map(len, bodies))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
