"""The options of what is made for Grafana, shared by the commands that generate it and that push it."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tallystream_cli import options as o

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tallystream_dashboards.grafana.settings import Settings

CaFile = Annotated[
    Path | None, typer.Option(help="CA certificates (PEM) to trust instead of the system's.", dir_okay=False)
]
Flavour = Annotated[str, typer.Option(help="The dashboards' query language: flux, influxql or prometheus.")]
DatasourceUrl = Annotated[
    str, typer.Option(help="The store's URL for Grafana; by default its usual port on localhost.")
]
DatasourceName = Annotated[str, typer.Option(help='The data source\'s name; by default "Tallystream Flux" and so on.')]
Org = Annotated[str, typer.Option(help="InfluxDB's organization.", envvar="INFLUXDB_ORG")]
Bucket = Annotated[
    str, typer.Option(help="InfluxDB's bucket; for InfluxQL, the database mapped to it.", envvar="INFLUXDB_BUCKET")
]
Folder = Annotated[str, typer.Option(help="The title of the folder in Grafana.")]
UidPrefix = Annotated[
    str, typer.Option(help="The prefix of every uid; two systems in one Grafana need different ones.")
]
RunbookUrl = Annotated[str, typer.Option(help="The page that the alerts link to.")]
Contact = Annotated[str, typer.Option(help="The type of the contact point: webhook or email.")]
ContactAddress = Annotated[
    str, typer.Option(help="The webhook's URL or the email addresses; $NAME is read from the environment.")
]
MissingInstances = Annotated[
    int, typer.Option(help="Alert when this many fewer instances are living than in the last hour.")
]
StoppedMinutes = Annotated[int, typer.Option(help="Alert when a sum has not grown for this many minutes.")]
LagSeconds = Annotated[
    float, typer.Option(help="Alert when a group's oldest unconsumed record is older than this, in seconds.")
]
SinkSeconds = Annotated[float, typer.Option(help="Alert when the oldest unshipped sum is older than this, in seconds.")]
DeadLetters = Annotated[int, typer.Option(help="Alert on more dead letters than this in ten minutes.")]
ProcessedTwice = Annotated[int, typer.Option(help="Alert on more records processed twice than this.")]
AggregatorSeconds = Annotated[int, typer.Option(help="Alert when no aggregator has worked for this many seconds.")]
CollectorSeconds = Annotated[int, typer.Option(help="Alert when no lag has been collected for this many seconds.")]
SkewSeconds = Annotated[
    float, typer.Option(help="Alert when timestamps differ from the records' arrival by more than this, in seconds.")
]


def settings(options: Mapping[str, Any]) -> Settings:
    """Return the settings that a command's options, by name, are; options of other things may be among them.

    Raises:
        ConfigError: one of them can't be used.
    """
    from tallystream_dashboards.grafana.settings import FLAVOURS, Settings, Thresholds
    from tallystream_dashboards.grafana.settings import Contact as ContactSettings

    return Settings(
        flavour=o.one_of("--flavour", options["flavour"], *FLAVOURS),  # type: ignore[arg-type]  # just so
        contact=ContactSettings(
            o.one_of("--contact", options["contact"], "webhook", "email"),  # type: ignore[arg-type]  # just so
            options["contact_address"],
        ),
        thresholds=Thresholds(**{field.name: options[field.name] for field in fields(Thresholds)}),
        datasource_url=options["datasource_url"],
        datasource_name=options["datasource_name"],
        org=options["org"],
        bucket=options["bucket"],
        folder_title=options["folder"],
        uid_prefix=options["uid_prefix"],
        runbook_url=options["runbook_url"],
    )
