"""`ship`: it writes sums to a store."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from tallystream_cli import options as o


class ShipCommand(o.Sections):
    """The sections of the help of `ship`."""

    sections = {  # noqa: RUF012 (a constant of the class)
        "What and where": ("store", "group", "rows", "ready_file"),
        "Settings of the store": ("org", "bucket", "retention_days"),
        "Kafka and security": ("bootstrap_servers", "topic_prefix", "kafka"),
        "Health": ("http_port", "http_address", "no_own_metrics"),
    }


def ship(
    *,
    store: o.AnyStore,
    bootstrap_servers: o.BootstrapServers = "localhost:9092",
    topic_prefix: o.TopicPrefix = "",
    kafka: o.Kafka = None,
    group: Annotated[
        str,
        typer.Option(help="The consumer group, one for each store; of two shippers of a group, one stands by."),
    ] = "tallystream-shipper",
    org: o.Org = None,
    bucket: o.Bucket = None,
    retention_days: o.RetentionDays = 30.0,
    rows: o.Rows = False,
    http_port: o.HttpPort = None,
    http_address: o.HttpAddress = "127.0.0.1",
    no_own_metrics: o.NoOwnMetrics = False,
    ready_file: o.ReadyFile = None,
) -> None:
    """Write the sums of metrics-agg, and events, to a store, in order; or serve the newest to Prometheus."""
    from tallystream_aggregator.health import HealthSettings
    from tallystream_aggregator.jobs.ship import ShipSettings, run
    from tallystream_aggregator.kafka.clients import Cluster
    from tallystream_aggregator.sinks.stores import StoreSettings

    settings = ShipSettings(
        Cluster(bootstrap_servers, topic_prefix, o.kafka_options(kafka, os.environ)),
        StoreSettings.parse(
            store,
            org=org,
            bucket=bucket,
            retention_days=retention_days,
        ),
        group=group,
        rows=rows,
        health=HealthSettings(http_port, http_address, own_metrics=not no_own_metrics),
        ready_file=ready_file,
    )
    raise typer.Exit(run(settings))
