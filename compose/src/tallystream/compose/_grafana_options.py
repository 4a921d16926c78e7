"""The options of what is made for Grafana, shared by the commands that generate it and that push it."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tallystream.compose import _options as o

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tallystream.dashboards.grafana.settings import Settings

CaFile = Annotated[
    Path | None, typer.Option(help="Certificates to trust instead of the system's, in PEM form.", dir_okay=False)
]
Flavour = Annotated[str, typer.Option(help="What the dashboards query: flux, influxql or prometheus.")]
DatasourceUrl = Annotated[
    str, typer.Option(help="Where Grafana finds the store; its usual port on localhost if not given.")
]
DatasourceName = Annotated[str, typer.Option(help='The data source\'s name; "Tallystream Flux" and so on.')]
Org = Annotated[str, typer.Option(help="InfluxDB's organization.", envvar="INFLUXDB_ORG")]
Bucket = Annotated[
    str, typer.Option(help="InfluxDB's bucket; for InfluxQL the database mapped to it.", envvar="INFLUXDB_BUCKET")
]
Folder = Annotated[str, typer.Option(help="The title of the folder.")]
UidPrefix = Annotated[str, typer.Option(help="Every uid begins with it: two systems in one Grafana have two of them.")]
RunbookUrl = Annotated[str, typer.Option(help="The page that the alerts lead to.")]
Contact = Annotated[str, typer.Option(help="Who is told: webhook or email.")]
ContactAddress = Annotated[
    str, typer.Option(help="The webhook's URL or the mail addresses; $NAME is taken from the environment.")
]
MissingInstances = Annotated[int, typer.Option(help="Alert: so many living instances fewer than in the last hour.")]
StoppedMinutes = Annotated[int, typer.Option(help="Alert: a sum has stopped growing for so long.")]
LagSeconds = Annotated[float, typer.Option(help="Alert: a group's oldest unconsumed record is older.")]
SinkSeconds = Annotated[float, typer.Option(help="Alert: the oldest sum that is not shipped is older.")]
DeadLetters = Annotated[int, typer.Option(help="Alert: more dead letters in ten minutes.")]
ProcessedTwice = Annotated[int, typer.Option(help="Alert: more records processed twice.")]
AggregatorSeconds = Annotated[int, typer.Option(help="Alert: no aggregator has done its work for so long.")]
CollectorSeconds = Annotated[int, typer.Option(help="Alert: the lag has not been collected for so long.")]
SkewSeconds = Annotated[float, typer.Option(help="Alert: timestamps are further from the records' arrival.")]


def settings(options: Mapping[str, Any]) -> Settings:
    """Return the settings that a command's options, by name, are; options of other things may be among them.

    Raises:
        ConfigError: one of them can't be used.
    """
    from tallystream.dashboards.grafana.settings import FLAVOURS, Settings, Thresholds
    from tallystream.dashboards.grafana.settings import Contact as Told

    return Settings(
        flavour=o.one_of("--flavour", options["flavour"], *FLAVOURS),  # type: ignore[arg-type]  # just so
        contact=Told(
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
