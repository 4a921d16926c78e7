"""A PySpark Structured Streaming job with its metrics and its lag: docs/guides/spark.md says how to start it.

Reads the topic `flights` and writes the length of each record to `flights-scored`.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from tallystream.spark import monitor


def main(servers: str, topic: str, checkpoint: str) -> None:
    """Run the query until it is stopped."""
    spark = SparkSession.builder.appName("scoring").getOrCreate()
    monitor(spark, app="scoring")
    kafka = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
    records = kafka.option("subscribe", topic).option("startingOffsets", "earliest").load()
    query = (
        records.selectExpr("CAST(length(value) AS STRING) AS value")
        .writeStream.queryName("scores")
        .format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", topic + "-scored")
        .option("checkpointLocation", checkpoint)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
