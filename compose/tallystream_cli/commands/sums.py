"""`sums`."""

from __future__ import annotations

from typing import Annotated

import typer

from tallystream_cli import options as o
from tallystream_cli.local import discovery


def sums(
    context: typer.Context,
    pattern: Annotated[
        str | None,
        typer.Argument(help="Show the names that match this shell pattern; by default all but the reporters' own."),
    ] = None,
    *,
    store: o.LocalStore = None,
    org: o.Org = None,
    bucket: o.Bucket = None,
    from_topic: Annotated[
        bool, typer.Option("--from-topic", help="Read the topic metrics-agg instead of a store, without rates.")
    ] = False,
    bootstrap_servers: o.LocalServers = None,
    topic_prefix: o.TopicPrefix = "",
    kafka: o.Kafka = None,
    app: Annotated[str | None, typer.Option(help="Show only the sums of this app.")] = None,
    watch: o.Watch = False,
    every: o.Every = 2.0,
    json: o.JsonLines = False,
    at: o.At = None,
) -> None:
    """Show the sums from the store: value, rate, living instances, time since the last change.

    Exit code: 0 there are sums, 1 there are none, 3 the store can't be read.
    """
    from tallystream_dashboards.terminal.show import show
    from tallystream_dashboards.terminal.sums import SumsSettings

    source = context.get_parameter_source("bootstrap_servers")
    given = source is not None and source.name == "COMMANDLINE"
    # In the environment, the address may be there for other commands.
    no_store = store is None and bootstrap_servers is not None and (given or discovery.find() is None)
    settings = SumsSettings(
        store=discovery.resolve_cluster(bootstrap_servers, topic_prefix, kafka)
        if from_topic or no_store
        else discovery.readable_store(store, org, bucket),
        pattern=pattern,
        app=app,
        watch=watch,
        json=json,
        at_ms=o.at_ms(at),
        every_s=every,
    )
    raise typer.Exit(show(settings))
