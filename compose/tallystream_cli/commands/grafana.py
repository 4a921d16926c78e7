"""The command that writes Grafana's dashboards and alert rules as files."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 (typer reads the annotations)
from typing import Annotated

import typer

from tallystream.errors import TallystreamError
from tallystream_cli import grafana_options as g


def generate(
    *,
    out: Annotated[Path, typer.Option(help="The folder to write to.", file_okay=False)],
    flavour: g.Flavour = "flux",
    dashboards_path: Annotated[
        str, typer.Option(help="The folder of the dashboards' files for Grafana's provisioning.")
    ] = "/var/lib/grafana/dashboards/tallystream",
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
    """Write Grafana's dashboards, alert rules and provisioning, and Prometheus' rules, as files."""
    made = g.settings(locals())
    from tallystream_dashboards.grafana import generate as files

    texts = files.files(made, dashboards_path=dashboards_path)
    try:
        files.write(texts, out)
    except OSError as error:
        raise TallystreamError(f"--out: {out} can't be written ({error}); choose another folder.") from error
    for name in texts:
        typer.echo(out / name)
