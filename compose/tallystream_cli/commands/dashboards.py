"""`dashboards generate` and `dashboards push`: Grafana's dashboards and alert rules, as files or in a server."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tallystream.errors import ConfigError
from tallystream_cli import options as o
from tallystream_dashboards.printable import printable

if TYPE_CHECKING:
    from tallystream_dashboards.grafana.settings import Settings

CaFile = Annotated[
    Path | None, typer.Option(help="CA certificates (PEM) to trust instead of the system's.", dir_okay=False)
]
Flavour = Literal["flux", "prometheus"]
FlavourOption = Annotated[Flavour, typer.Option(help="The dashboards' query language: flux or prometheus.")]
Bucket = Annotated[str, typer.Option(help="InfluxDB's bucket.", envvar="INFLUXDB_BUCKET")]
Folder = Annotated[str, typer.Option(help="The title of the folder in Grafana.")]
UidPrefix = Annotated[
    str, typer.Option(help="The prefix of every uid; two systems in one Grafana need different ones.")
]
RunbookUrl = Annotated[str, typer.Option(help="The page that the alerts link to.")]
Threshold = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=NUMBER", help="When an alert rule fires, as in lag-seconds=60; repeatable (docs/grafana.md)."
    ),
]


class PushCommand(o.Sections):
    """The sections of the help of `dashboards push`."""

    sections = {  # noqa: RUF012 (a constant of the class)
        "Push": ("grafana_url", "dry_run", "force", "ca_file"),
        "Data source": ("flavour", "datasource_uid", "bucket"),
        "Dashboards": ("folder", "uid_prefix"),
        "Alert rules": ("threshold", "runbook_url", "contact_point"),
    }


def generate(
    *,
    out: Annotated[Path, typer.Option(help="The folder to write to.", file_okay=False)],
    flavour: FlavourOption = "flux",
    dashboards_path: Annotated[
        str, typer.Option(help="The folder of the dashboards' files for Grafana's provisioning.")
    ] = "/var/lib/grafana/dashboards/tallystream",
    datasource_url: Annotated[
        str, typer.Option(help="The store's URL for Grafana; by default its usual port on localhost.")
    ] = "",
    org: Annotated[str, typer.Option(help="InfluxDB's organization.", envvar="INFLUXDB_ORG")] = "tallystream",
    bucket: Bucket = "tallystream",
    folder: Folder = "Tallystream",
    uid_prefix: UidPrefix = "tallystream",
    runbook_url: RunbookUrl = "docs/runbook.md",
    threshold: Threshold = None,
) -> None:
    """Write Grafana's dashboards, alert rules and provisioning, and Prometheus' rules, as files."""
    grafana = _settings(
        flavour,
        threshold,
        bucket=bucket,
        datasource_url=datasource_url,
        org=org,
        dashboards_path=dashboards_path,
        folder_title=folder,
        uid_prefix=uid_prefix,
        runbook_url=runbook_url,
    )
    from tallystream_dashboards.grafana import generate as files

    texts = files.files(grafana)
    try:
        files.write(texts, out)
    except OSError as error:
        raise ConfigError("--out", str(out), f"choose another folder; the system reports: {error.strerror}") from error
    for name in texts:
        typer.echo(out / name)


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
    force: Annotated[bool, typer.Option("--force", help="Overwrite what a person changed.")] = False,
    ca_file: CaFile = None,
    flavour: FlavourOption = "flux",
    datasource_uid: Annotated[
        str, typer.Option(help="The uid of the store's data source in Grafana; by default tallystream-flux and so on.")
    ] = "",
    bucket: Bucket = "tallystream",
    folder: Folder = "Tallystream",
    uid_prefix: UidPrefix = "tallystream",
    runbook_url: RunbookUrl = "docs/runbook.md",
    contact_point: Annotated[
        str, typer.Option(help="The contact point that is notified; by default Grafana's notification policies decide.")
    ] = "",
    threshold: Threshold = None,
) -> None:
    """Create or update the folder, the dashboards and the alert rules in Grafana.

    A second push changes nothing. Exit code: 0 done; 1 it failed, or it was refused because a person changed something;
    2 a setting can't be used.
    """
    settings = _settings(
        flavour,
        threshold,
        bucket=bucket,
        datasource_uid=datasource_uid,
        folder_title=folder,
        uid_prefix=uid_prefix,
        runbook_url=runbook_url,
    )
    from tallystream_dashboards.grafana.client import Grafana
    from tallystream_dashboards.grafana.push import run

    def say(line: str) -> None:
        typer.echo(printable(line))

    grafana = Grafana(grafana_url, os.environ, ca_file)
    raise typer.Exit(run(grafana, settings, say, contact_point=contact_point, dry_run=dry_run, force=force))


def _settings(flavour: Flavour, threshold: list[str] | None, **others: str) -> Settings:
    """Return the settings of these options.

    Raises:
        ConfigError: a value can't be used.
    """
    from tallystream_dashboards.grafana.settings import Settings, Thresholds

    return Settings(
        flavour=flavour,
        thresholds=Thresholds.parse(threshold or ()),
        **others,
    )
