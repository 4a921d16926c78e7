"""`forget`: remove lives or a metric from the sums. It prints what would be removed, and removes it with --yes."""

from __future__ import annotations

import json as json_
import signal
import sys
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from tallystream.errors import ConfigError
from tallystream_cli import options as o  # noqa: TC001 (typer reads the annotations)
from tallystream_cli.local import discovery
from tallystream_dashboards.exit_codes import INTERRUPTED, NotKnownError
from tallystream_dashboards.printable import printable

if TYPE_CHECKING:
    from tallystream_aggregator.jobs.forget import Plan
    from tallystream_aggregator.table.records.decode import Forget

MAX_ROWS = 20
"""The number of rows of a table that is printed."""

LIVING = "living lives publish absolute values: their next snapshot brings their counts back"
FORGOTTEN = "what the instance's forgotten lives counted stays: it has no instance any more, remove it by metric"


def forget(
    *,
    instance: Annotated[str | None, typer.Option(help="Remove the lives of this instance ID.")] = None,
    life: Annotated[str | None, typer.Option(help="Remove only this life of the instance: its ULID.")] = None,
    metric: Annotated[str | None, typer.Option(help="Remove the metrics of this name from all lives.")] = None,
    app: Annotated[str | None, typer.Option(help="Remove only from this app.")] = None,
    type_: Annotated[
        str | None, typer.Option("--type", help="Remove only metrics of this type, as in counter.")
    ] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Remove only metrics that have this tag; repeatable."),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Remove; without this option the command only shows what it would remove.")
    ] = False,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for the aggregator to apply the removal.")] = 60.0,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
    bootstrap_servers: o.LocalServers = None,
    topic_prefix: o.TopicPrefix = "",
    kafka: o.Kafka = None,
) -> None:
    """Remove an instance's lives, one life, or a metric from the sums; without --yes, only show what would be removed.

    Use it for what a broken or hostile instance published. Values that are still published come back with the next
    snapshot, because they are absolute. The counts of an instance's forgotten lives stay: they can be removed only by
    metric.
    """
    from tallystream_aggregator.jobs.forget import ForgetSettings, NoMatchError, publish, read_plan
    from tallystream_aggregator.shutdown import stop_on_signals

    tags = dict(map(_tag, tag or ()))
    selection = _selection(instance, metric, {"app": app, "life": life, "type": type_, "tags": tags})
    if not timeout > 0:  # also nan
        raise ConfigError("--timeout", timeout, "give a number of seconds above 0")
    cluster = discovery.resolve_cluster(bootstrap_servers, topic_prefix, kafka)
    settings = ForgetSettings(cluster, selection, instance, timeout)

    def say(line: str) -> None:
        sys.stderr.write(f"{printable(line)}\n")

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C
    try:
        try:
            plan = read_plan(settings)
        except NoMatchError as error:
            raise NotKnownError(*error.args) from error
        if not json:
            sys.stdout.write(as_text(plan, of_instance=instance is not None))
    except KeyboardInterrupt:
        say("stopped: nothing is published")
        raise
    if yes:
        with stop_on_signals() as stop:
            if not publish(settings, plan, say, stop):
                raise typer.Exit(INTERRUPTED)
    else:
        say("nothing is changed: give --yes to remove it")
    if json:
        sys.stdout.write(json_.dumps(as_dict(plan, published=yes)) + "\n")


def _selection(instance: str | None, metric: str | None, options: dict[str, Any]) -> Forget:
    """Return the request for the options.

    Raises:
        ConfigError: an option is missing, can't be combined with another, or has an invalid value.
    """
    from tallystream_aggregator.table.records.decode import Forget

    if instance is None and metric is None:
        raise ConfigError("--instance", None, "name the instance whose lives are removed, or a metric with --metric")
    if instance is not None and metric is not None:
        raise ConfigError("--metric", metric, f"leave it out, or --instance {instance}: give one of the two")
    for name in ("life",) if instance is None else ("type", "tags"):
        if options[name]:
            other = "--instance" if instance is None else "--metric"
            raise ConfigError(f"--{name.rstrip('s')}", options[name], f"give it with {other}")
    try:
        return msgspec.convert(options | {"metric": metric}, Forget)
    except msgspec.ValidationError as error:
        raise ConfigError("forget", options | {"metric": metric}, f"correct it: {error}") from error


def _tag(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ConfigError("--tag", text, "give NAME=VALUE, as in site=x")
    return name, value


def as_text(plan: Plan, *, of_instance: bool) -> str:
    """Return the lives, the metrics whose sums lose something, and what stays or comes back."""
    from tallystream_dashboards.terminal.show import aligned

    text = ""
    if plan.lives:
        lives = [("app", "instance", "life", "state", "metrics")]
        lives += [(one.app, one.instance, one.life, one.state, str(one.metrics)) for one in plan.lives[:MAX_ROWS]]
        text += aligned(lives, right=(4,)) + "\n"
    sums = [("app", "metric", "type")]
    for app, name, kind, tags in plan.sums[:MAX_ROWS]:
        sums.append((app, name + "".join(f" {tag}={value}" for tag, value in tags), kind))
    text += aligned(sums, right=())
    if max(len(plan.lives), len(plan.sums)) > MAX_ROWS:
        text += f"and more: --json has all {len(plan.lives):,} lives and {len(plan.sums):,} sums\n"
    if any(life.state == "living" for life in plan.lives):
        text += f"{LIVING}\n"
    return f"{text}{FORGOTTEN}\n" if of_instance else text


def as_dict(plan: Plan, *, published: bool) -> dict[str, Any]:
    """Return the plan as it is printed with --json."""
    lives = [life._asdict() for life in plan.lives]
    sums = [{"app": app, "name": name, "type": kind, "tags": dict(tags)} for app, name, kind, tags in plan.sums]
    return {"published": published, "lives": lives, "sums": sums}
