"""An asyncio application with aiokafka that waits for the report without blocking the event loop.

    python docs/examples/aiokafka_consumer.py localhost:9092 flights flights-1

Reads the topic `flights` as a consumer group, one process or many, until SIGTERM or Ctrl-C. The third argument is the
instance ID, which differs for each process. Requires tallystream and aiokafka.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import TYPE_CHECKING

from aiokafka import AIOKafkaConsumer

from tallystream import ConsumerProgress, KafkaReporter, MetricRegistry

if TYPE_CHECKING:
    from aiokafka import ConsumerRecord

registry = MetricRegistry("flights")
handling = registry.timer("flights.handle")


@handling
async def handle(record: ConsumerRecord) -> int:
    """Do the application's work on one record. The timer measures it until it ends."""
    await asyncio.sleep(0)
    return len(record.value)


async def main(servers: str, topic: str, instance: str) -> None:
    """Take, report, work, count, report, commit: in this order."""
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)

    progress = ConsumerProgress(registry, "flights.processed")
    metrics = os.environ.get("TALLYSTREAM_TOPIC_PREFIX", "") + "metrics"
    reporter = KafkaReporter(registry, bootstrap_servers=servers, instance=instance, topic=metrics).start()
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=topic + "-processing",
        group_instance_id=instance,  # a static member: after a crash it gets its partitions back immediately
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    await consumer.start()
    try:
        while not ended.is_set():
            by_partition = await consumer.getmany(timeout_ms=500, max_records=500)
            records = [record for records in by_partition.values() for record in records]
            if not records:
                continue
            progress.taken(records)
            # report_now() waits for the broker. In a thread, it does not block heartbeats and other tasks.
            await asyncio.to_thread(reporter.report_now, timeout=10)
            await asyncio.gather(*map(handle, records))
            progress.processed(records)
            if await asyncio.to_thread(reporter.report_now, timeout=10):
                await consumer.commit()
    finally:
        await consumer.stop()
        await asyncio.to_thread(reporter.stop)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
