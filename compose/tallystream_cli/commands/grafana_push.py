"""The command that brings dashboards and alert rules into a Grafana server."""

from __future__ import annotations

from typing import Annotated

import typer

from tallystream.errors import ConfigError
from tallystream_aggregator.terminal import printable
from tallystream_cli import grafana_options as g


def push(
    *,
    grafana_url: Annotated[
        str,
        typer.Option(
            help="Grafana's URL; the token is in GRAFANA_TOKEN, or in the file that GRAFANA_TOKEN_FILE names.",
            envvar="GRAFANA_URL",
            show_envvar=True,
        ),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what a push would do, and write nothing.")] = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="Remove what an earlier push created and is no longer generated.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Overwrite what a person changed since the last push.")
    ] = False,
    keep_changed: Annotated[
        bool, typer.Option("--keep-changed", help="Keep what a person changed, and push the rest.")
    ] = False,
    ca_file: g.CaFile = None,
    flavour: g.Flavour = "flux",
    datasource_url: g.DatasourceUrl = "",
    datasource_name: g.DatasourceName = "",
    org: g.Org = "tallystream",
    bucket: g.Bucket = "tallystream",
    folder: g.Folder = "Tallystream",
    uid_prefix: g.UidPrefix = "tallystream",
    runbook_url: g.RunbookUrl = "docs/runbook.md",
    contact: g.Contact = "webhook",
    contact_address: g.ContactAddress = "$TALLYSTREAM_ALERT_URL",
    missing_instances: g.MissingInstances = 1,
    stopped_minutes: g.StoppedMinutes = 10,
    lag_seconds: g.LagSeconds = 300.0,
    sink_seconds: g.SinkSeconds = 120.0,
    dead_letters: g.DeadLetters = 0,
    processed_twice: g.ProcessedTwice = 0,
    aggregator_seconds: g.AggregatorSeconds = 120,
    collector_seconds: g.CollectorSeconds = 300,
    skew_seconds: g.SkewSeconds = 5.0,
) -> None:
    """Bring folder, data source, dashboards, alert rules and contact point into Grafana; a second push writes nothing.

    Exit code: 0 done, 1 refused since a person changed something, or failed in the midst, 2 a setting can't be used.
    """
    generate = g.settings(locals())
    from tallystream_dashboards.grafana.push.job import PushSettings, run

    if overwrite and keep_changed:
        raise ConfigError("--overwrite", "--keep-changed", "give one of the two")
    settings = PushSettings(
        url=grafana_url,
        generate=generate,
        dry_run=dry_run,
        prune=prune,
        on_manual_change="overwrite" if overwrite else "keep" if keep_changed else "refuse",
        ca_file=ca_file,
    )
    raise typer.Exit(run(settings, lambda line: typer.echo(printable(line))))
