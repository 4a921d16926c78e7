"""`doctor`: check everything that the commands need, and print one line for each check."""

from __future__ import annotations

import json as json_
import sys
from collections import Counter
from pathlib import Path  # noqa: TC003 (typer reads the annotations)
from typing import TYPE_CHECKING, Annotated

import typer

from tallystream_cli import options as o  # noqa: TC001 (typer reads the annotations)
from tallystream_cli.local import discovery
from tallystream_dashboards.exit_codes import BAD, GOOD

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tallystream_cli.doctor.findings import Finding


def doctor(
    *,
    bootstrap_servers: o.LocalServers = None,
    topic_prefix: o.TopicPrefix = "",
    kafka: o.Kafka = None,
    otlp_topic: o.OtlpTopic = None,
    store: Annotated[
        str | None,
        typer.Option(
            help="The store to check; by default the local system's in this folder.",
            envvar="TALLYSTREAM_STORE",
            show_envvar=True,
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="The aggregator's checkpoint to check; by default the local system's in this folder."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """Check Java, packages, broker, topics, store and checkpoint; nothing is changed.

    Exit code: 0 nothing failed, 1 a check failed.
    """
    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_aggregator.sinks.stores import StoreSettings
    from tallystream_cli.doctor.run import run

    chosen = None if store is None else StoreSettings.parse(store)
    cluster = discovery.resolve_cluster(bootstrap_servers, topic_prefix, kafka)
    local = discovery.find() if bootstrap_servers is None else None
    if local is not None:
        chosen = chosen or local.store()
        checkpoint = checkpoint or local.folder / "aggregate"
        local.announce(f"store {chosen.spec}", f"checkpoint {checkpoint}")
    topics = Topics(cluster.topic_prefix, otlp=tuple(otlp_topic or ()))
    findings = list(run(topics, cluster.options, chosen, checkpoint))
    sys.stdout.write(as_json(findings) if json else as_table(findings))
    raise typer.Exit(BAD if has_failed(findings) else GOOD)


def has_failed(findings: Sequence[Finding]) -> bool:
    """Return whether a check failed."""
    return any(one.status == "failed" for one in findings)


def as_table(findings: Sequence[Finding]) -> str:
    """Return a line for each finding, with the remedy at its end, and a line with the number of each status."""
    from tallystream_dashboards.terminal.show import aligned

    rows = [("status", "check", "finding")]
    rows += [(one.status, one.check, " → ".join(filter(None, (one.found, one.remedy)))) for one in findings]
    counts = Counter(one.status for one in findings)
    return aligned(rows, right=()) + ", ".join(f"{status}: {number}" for status, number in counts.items()) + "\n"


def as_json(findings: Sequence[Finding]) -> str:
    """Return the findings as one JSON object."""
    content = {"ok": not has_failed(findings), "findings": [one._asdict() for one in findings]}
    return json_.dumps(content) + "\n"
