"""`dashboards generate` and `dashboards push`: Grafana's dashboards and alert rules, as files or in a server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tallystream.errors import TallystreamError
from tallystream_cli import options as o
from tallystream_dashboards.printable import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tallystream_dashboards.grafana.settings import Settings

CaFile = Annotated[
    Path | None, typer.Option(help="CA certificates (PEM) to trust instead of the system's.", dir_okay=False)
]
Flavour = Annotated[str, typer.Option(help="The dashboards' query language: flux or prometheus.")]
DatasourceUrl = Annotated[
    str, typer.Option(help="The store's URL for Grafana; by default its usual port on localhost.")
]
DatasourceName = Annotated[str, typer.Option(help='The data source\'s name; by default "Tallystream Flux" and so on.')]
Org = Annotated[str, typer.Option(help="InfluxDB's organization.", envvar="INFLUXDB_ORG")]
Bucket = Annotated[str, typer.Option(help="InfluxDB's bucket.", envvar="INFLUXDB_BUCKET")]
Folder = Annotated[str, typer.Option(help="The title of the folder in Grafana.")]
UidPrefix = Annotated[
    str, typer.Option(help="The prefix of every uid; two systems in one Grafana need different ones.")
]
RunbookUrl = Annotated[str, typer.Option(help="The page that the alerts link to.")]
ContactType = Annotated[str, typer.Option(help="The type of the contact point: webhook or email.")]
ContactAddress = Annotated[
    str, typer.Option(help="The webhook's URL or the email addresses; $NAME is read from the environment.")
]
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
        "Data source": ("flavour", "datasource_url", "datasource_name", "org", "bucket"),
        "Dashboards": ("folder", "uid_prefix"),
        "Alert rules": ("threshold", "runbook_url", "contact", "contact_address"),
    }


def generate(
    *,
    out: Annotated[Path, typer.Option(help="The folder to write to.", file_okay=False)],
    flavour: Flavour = "flux",
    dashboards_path: Annotated[
        str, typer.Option(help="The folder of the dashboards' files for Grafana's provisioning.")
    ] = "/var/lib/grafana/dashboards/tallystream",
    datasource_url: DatasourceUrl = "",
    datasource_name: DatasourceName = "",
    org: Org = "tallystream",
    bucket: Bucket = "tallystream",
    folder: Folder = "Tallystream",
    uid_prefix: UidPrefix = "tallystream",
    runbook_url: RunbookUrl = "docs/runbook.md",
    contact: ContactType = "webhook",
    contact_address: ContactAddress = "$TALLYSTREAM_ALERT_URL",
    threshold: Threshold = None,
) -> None:
    """Write Grafana's dashboards, alert rules and provisioning, and Prometheus' rules, as files."""
    grafana = _settings(locals())
    from tallystream_dashboards.grafana import generate as files

    texts = files.files(grafana, dashboards_path=dashboards_path)
    try:
        files.write(texts, out)
    except OSError as error:
        raise TallystreamError(f"--out: {out} can't be written ({error}); choose another folder.") from error
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
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite what a person changed, also data source and contact point.")
    ] = False,
    ca_file: CaFile = None,
    flavour: Flavour = "flux",
    datasource_url: DatasourceUrl = "",
    datasource_name: DatasourceName = "",
    org: Org = "tallystream",
    bucket: Bucket = "tallystream",
    folder: Folder = "Tallystream",
    uid_prefix: UidPrefix = "tallystream",
    runbook_url: RunbookUrl = "docs/runbook.md",
    contact: ContactType = "webhook",
    contact_address: ContactAddress = "$TALLYSTREAM_ALERT_URL",
    threshold: Threshold = None,
) -> None:
    """Create or update folder, data source, dashboards, alert rules and contact point in Grafana.

    A second push writes nothing. Exit code: 0 done; 1 it failed, or it was refused because a person changed something;
    2 a setting can't be used.
    """
    grafana = _settings(locals())
    from tallystream_dashboards.grafana.push.job import PushSettings, run

    settings = PushSettings(url=grafana_url, generate=grafana, dry_run=dry_run, force=force, ca_file=ca_file)
    raise typer.Exit(run(settings, lambda line: typer.echo(printable(line))))


def _settings(options: Mapping[str, Any]) -> Settings:
    """Return the settings for the options by name; other names in `options` are ignored.

    Raises:
        ConfigError: a value can't be used.
    """
    from tallystream_dashboards.grafana.settings import FLAVOURS, Contact, Settings, Thresholds

    return Settings(
        flavour=o.one_of("--flavour", options["flavour"], *FLAVOURS),  # type: ignore[arg-type]  # one_of checks it
        contact=Contact(
            o.one_of("--contact", options["contact"], "webhook", "email"),  # type: ignore[arg-type]  # the same
            options["contact_address"],
        ),
        thresholds=Thresholds.parse(options["threshold"] or ()),
        datasource_url=options["datasource_url"],
        datasource_name=options["datasource_name"],
        org=options["org"],
        bucket=options["bucket"],
        folder_title=options["folder"],
        uid_prefix=options["uid_prefix"],
        runbook_url=options["runbook_url"],
    )
