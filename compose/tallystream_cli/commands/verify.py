"""The command that checks every sum: verify."""

from __future__ import annotations

from typing import Annotated

import typer

from tallystream.errors import ConfigError, TallystreamError
from tallystream_cli import options as o  # noqa: TC001 (typer reads the annotations)


class UncheckedError(TallystreamError):
    """The sums could not be checked. The command line ends with code 2, since 1 says that there are differences."""


def verify(
    *,
    bootstrap_servers: o.LocalServers = None,
    topic_prefix: o.TopicPrefix = "",
    kafka: o.Kafka = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="Compare every sum after this time, in UTC, or ledger:TIME; by default the latest of each metric.",
        ),
    ] = None,
    to: Annotated[str | None, typer.Option(help="Compare up to this time, in UTC, or ledger:TIME.")] = None,
    began: Annotated[
        str | None, typer.Option(help="Where a table with --accept-partial started: offsets as JSON.")
    ] = None,
    max_app_metrics: Annotated[int, typer.Option(help="Must equal the aggregator's --max-app-metrics.")] = 1_000_000,
    otlp_topic: o.OtlpTopic = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
    most: Annotated[int, typer.Option(help="The maximum number of differences in the table.")] = 50,
) -> None:
    """Replay the topic metrics with independent code and compare every sum.

    Exit code: 0 all agree, 1 there are differences, 2 the sums could not be checked.
    """
    from tallystream_aggregator.verify.job import VerifySettings
    from tallystream_aggregator.verify.lives import Settings
    from tallystream_cli.local import discovery
    from tallystream_cli.output import verify as _verify

    local = discovery.find() if bootstrap_servers is None else None
    if local is not None:
        local.say(f"broker {local.record.bootstrap_servers}")
    cluster = discovery.cluster(local, bootstrap_servers, topic_prefix, kafka)
    settings = VerifySettings(
        cluster.bootstrap_servers,
        topic_prefix=cluster.topic_prefix,
        kafka=cluster.kafka,
        since=since,
        to=to,
        began=began,
        rules=Settings(max_app_metrics=max_app_metrics, otlp_topics=tuple(otlp_topic or ())),
    )
    try:
        code = _verify.verify(settings, as_json=json, most=most)
    except ConfigError:
        raise
    except TallystreamError as error:
        raise UncheckedError(*error.args) from error
    raise typer.Exit(code)
