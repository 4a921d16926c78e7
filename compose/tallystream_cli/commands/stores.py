"""`ship`, and `replay` for a past period: they write sums to a store."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from tallystream_cli import options as o
from tallystream_cli.local import discovery

if TYPE_CHECKING:
    from tallystream_aggregator.jobs.replay import ReplaySettings


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
    influxdb_ca: o.InfluxCa = None,
    graphite_prefix: o.GraphitePrefix = "",
    retention_days: o.RetentionDays = 30.0,
    events: Annotated[
        bool, typer.Option("--events/--no-events", help="Also ship metrics-events, for annotations in graphs.")
    ] = True,
    rows: Annotated[
        bool,
        typer.Option(
            "--rows", help="Also ship the values of each instance: a series for each metric of each instance."
        ),
    ] = False,
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
            ca_file=influxdb_ca,
            prefix=graphite_prefix,
        ),
        group=group,
        events=events,
        rows=rows,
        health=HealthSettings(http_port, http_address, own_metrics=not no_own_metrics),
        ready_file=ready_file,
    )
    raise typer.Exit(run(settings))


def replay(
    *,
    start: Annotated[str, typer.Option("--from", help="The start of the period, in UTC, as in 2026-11-20T03:12.")],
    store: o.LocalAnyStore = None,
    end: Annotated[str | None, typer.Option("--to", help="The end of the period, in UTC; by default now.")] = None,
    bootstrap_servers: o.LocalServers = None,
    topic_prefix: o.TopicPrefix = "",
    kafka: o.Kafka = None,
    org: o.Org = None,
    bucket: o.Bucket = None,
    influxdb_ca: o.InfluxCa = None,
    graphite_prefix: o.GraphitePrefix = "",
    retention_days: o.RetentionDays = 30.0,
) -> None:
    """Write the points of a past period to a store again: those whose time is in it."""
    from tallystream_aggregator.jobs.replay import ReplaySettings
    from tallystream_aggregator.sinks.stores import StoreSettings

    from_ms = o.time_ms("--from", start)
    to_ms = int(time.time() * 1000) if end is None else o.time_ms("--to", end)
    # A store in the environment belongs to another system, so it must not get the local system's sums.
    local = discovery.find() if bootstrap_servers is None and not os.environ.get("TALLYSTREAM_STORE") else None
    if local is not None:
        used = [f"broker {local.state.bootstrap_servers}"]
        if store is None:
            store, org, bucket = local.store(org, bucket)
            used.append(f"store {store}")
        local.announce(*used)
    if store is None:
        raise discovery.no_store()
    cluster = discovery.cluster_of(local, bootstrap_servers, topic_prefix, kafka)
    settings = ReplaySettings(
        cluster,
        StoreSettings.parse(
            store,
            org=org,
            bucket=bucket,
            retention_days=retention_days,
            ca_file=influxdb_ca,
            prefix=graphite_prefix,
        ),
        from_ms,
        to_ms,
    )
    raise typer.Exit(write_period(settings))


def write_period(settings: ReplaySettings) -> int:
    """Replay, print the number of points, and return 0; 130 if SIGTERM or Ctrl-C stopped it between two writes."""
    from tallystream_aggregator.jobs.replay import run
    from tallystream_aggregator.shipping.retries import StoppedError
    from tallystream_aggregator.shutdown import StopRequest

    stop = StopRequest().install()
    try:
        points = run(settings, stop, lambda sentence: sys.stderr.write(f"{sentence}\n"))
    except StoppedError:
        sys.stderr.write("stopped: the written points stay, and the next replay writes them again\n")
        return o.INTERRUPTED
    sys.stdout.write(f"{points:,} points are in the store\n")
    return 0
