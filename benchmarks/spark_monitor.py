"""What `tallystream.spark.monitor` costs a batch, on a local broker: `python -m benchmarks.spark_monitor`.

A query reads Kafka and writes to no store, as fast as it can, first without the monitor and then with it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tallystream_cli.servers import jars
from tallystream_cli.servers.broker import KafkaBroker

BATCHES = 50


def main() -> None:
    """Print the milliseconds of each part."""
    connector = ",".join(str(path) for path in jars.fetch("connector"))
    os.environ["PYSPARK_SUBMIT_ARGS"] = (
        f"--master local[2] --jars {connector} --conf spark.ui.enabled=false --conf spark.ui.showConsoleProgress=false "
        "--conf spark.driver.host=127.0.0.1 --conf spark.driver.bindAddress=127.0.0.1 pyspark-shell"
    )
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    from tallystream.spark import monitor
    from tallystream.spark.query_listener import QueryListener
    from tallystream.spark.recorder import QueryRecorder

    spark = SparkSession.builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    listener, counting, commits = (
        Timed(QueryListener, "onQueryProgress"),
        Timed(QueryRecorder, "_count"),
        Timed(QueryRecorder, "_commit_all"),
    )
    with tempfile.TemporaryDirectory() as name, KafkaBroker(Path(name)) as broker:
        servers = broker.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        for topic, partitions in (("metrics", 1), ("events", 8)):
            admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)
        run(spark, servers, 20)
        without = run(spark, servers, BATCHES)
        monitoring = monitor(spark, app="benchmark", bootstrap_servers=servers)
        monitored = run(spark, servers, BATCHES)
        assert monitoring.stop()
        spark.stop()
    print(f"{BATCHES} batches of 8 partitions, milliseconds a batch (median, 99 %)")
    show("the batch without the monitor", without)
    show("the batch with the monitor", monitored)
    show("the listener, in Spark's thread", listener.ms)
    show("counting, in the monitor's thread", counting.ms)
    show("report and commit, in the monitor's thread", [ms for ms in commits.ms if ms > 0.1])


class Timed:
    """Measures each call of a method, in milliseconds."""

    def __init__(self, of: type, name: str) -> None:
        self.ms: list[float] = []
        method = getattr(of, name)

        def timed(*arguments: Any) -> Any:
            began = time.perf_counter()
            try:
                return method(*arguments)
            finally:
                self.ms.append((time.perf_counter() - began) * 1000)

        setattr(of, name, timed)


def run(spark: Any, servers: str, batches: int) -> list[float]:
    """Run a query for so many batches, and return their durations in milliseconds."""
    producer = Producer({"bootstrap.servers": servers})
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", "events")
    query = source.load().writeStream.format("noop").queryName(f"q{uuid.uuid4().hex[:8]}").start()
    durations: dict[int, float] = {}
    while len(durations) < batches:
        producer.produce("events", b"event")
        producer.flush(30)
        for progress in query.recentProgress:
            durations[progress["batchId"]] = progress["batchDuration"]
    query.stop()
    return list(durations.values())


def show(what: str, ms: list[float]) -> None:
    """Print the median and the 99th percentile."""
    print(f"{what:45} {statistics.median(ms):8.2f} {statistics.quantiles(ms, n=100)[98]:8.2f}")


if __name__ == "__main__":
    argparse.ArgumentParser(prog="python -m benchmarks.spark_monitor", description=__doc__).parse_args()
    main()
