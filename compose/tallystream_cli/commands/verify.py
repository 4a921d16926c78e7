"""`verify`: compare every sum with an independent replay, and print the differences."""

from __future__ import annotations

import json as json_
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tallystream.errors import ConfigError, TallystreamError
from tallystream_cli import options as o  # noqa: TC001 (typer reads the annotations)
from tallystream_cli.local import discovery
from tallystream_dashboards.exit_codes import BAD, GOOD, NotKnownError
from tallystream_dashboards.formatting import counted
from tallystream_dashboards.printable import printable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TextIO

    from tallystream_aggregator.kafka.clients import Cluster
    from tallystream_aggregator.verify.check import Difference, Outcome

PROGRESS_INTERVAL_S = 5.0
MAX_ROWS = 50
"""The number of differences in the table."""


def verify(
    *,
    bootstrap_servers: o.LocalServers = None,
    topic_prefix: o.TopicPrefix = "",
    kafka: o.Kafka = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """Replay the topic metrics with independent code and compare every sum.

    Exit code: 0 all agree, 1 there are differences, 3 the sums could not be checked.
    """
    cluster = discovery.resolve_cluster(bootstrap_servers, topic_prefix, kafka)
    try:
        code = check(cluster, as_json=json)
    except ConfigError:
        raise
    except TallystreamError as error:
        raise NotKnownError(*error.args) from error
    raise typer.Exit(code)


def check(cluster: Cluster, *, as_json: bool) -> int:
    """Verify, print the outcome, and return the exit code."""
    from tallystream_aggregator.verify.job import run

    outcome = run(cluster, progress=Progress(sys.stderr))
    if as_json:
        sys.stdout.write(json_.dumps(as_dict(outcome)) + "\n")
    else:
        sys.stdout.write(as_text(outcome))
    return BAD if outcome.differences else GOOD


class Progress:
    """Writes what is done to `stream` every few seconds, so nothing for a short topic."""

    def __init__(self, stream: TextIO, clock: Any = time.monotonic) -> None:
        self._stream, self._clock = stream, clock
        self._what = ""
        self._started_at = self._printed_at = clock()

    def __call__(self, what: str, done: int, total: int) -> None:
        """Report how many of about `total` records are done so far."""
        now = self._clock()
        if what != self._what:
            self._what, self._started_at = what, now
        elif now - self._printed_at >= PROGRESS_INTERVAL_S:
            self._printed_at = now
            rate = done / (now - self._started_at)
            self._stream.write(f"{done:,} of {max(done, total):,} {what}, {rate:,.0f} a second\n")
            self._stream.flush()


def as_text(outcome: Outcome) -> str:
    """Return a table of the first `MAX_ROWS` differences, the summary and the notes."""
    from tallystream_dashboards.terminal.show import aligned

    text = ""
    if outcome.differences:
        head = ("app", "metric", "field", "published", "replayed", "offsets")
        text += aligned([head, *map(_cells, outcome.differences[:MAX_ROWS])], right=())
        if len(outcome.differences) > MAX_ROWS:
            text += f"and {len(outcome.differences) - MAX_ROWS:,} more: --json has them all\n"
    return text + "".join(f"{printable(line)}\n" for line in (summary(outcome), *notes(outcome)))


def summary(outcome: Outcome) -> str:
    """Return one sentence: what was compared, and whether it agrees."""
    ends = ", ".join(f"{partition}: {end:,}" for partition, end in _short_names(outcome.ends).items())
    numbers = {"sum": outcome.sums, "dead letter": outcome.letters, "event": outcome.events, "record": outcome.records}
    counts = ", ".join(counted(number, noun) for noun, number in numbers.items() if number is not None)
    result = counted(len(outcome.differences), "difference") if outcome.differences else "all agree"
    return f"{result}: {counts} (partition: next offset {ends})"


def notes(outcome: Outcome) -> list[str]:
    """Return one sentence for each kind of record that was not compared, with the reason."""
    sentences = []
    if outcome.moved:
        moved = counted(outcome.moved, "instance", "has", "have")
        sentences.append(f"{moved} records in several partitions: the events of such instances were not compared")
    if outcome.unreadable:
        skipped = counted(outcome.unreadable, "record", "was", "were")
        sentences.append(f"{skipped} skipped in metrics-agg: not a sum")
    if outcome.letters is None:
        sentences.append("dead letters were not compared: some have been deleted")
    if outcome.events is None:
        sentences.append("events were not compared: some have been deleted")
    return sentences


def as_dict(outcome: Outcome) -> dict[str, Any]:
    """Return the outcome as it is printed with --json."""
    keys = ("records", "sums", "letters", "events", "moved", "unreadable", "ends")
    content: dict[str, Any] = {"agree": not outcome.differences} | {key: getattr(outcome, key) for key in keys}
    return content | {"differences": [_difference(difference) for difference in outcome.differences]}


def _difference(difference: Difference) -> dict[str, Any]:
    app, kind, name, tags = difference.identity or (None, None, None, ())
    content = {"app": app, "type": kind, "name": name, "tags": dict(tags), "field": difference.field}
    return content | {"published": difference.published, "replayed": difference.replayed, "ends": difference.ends}


def _cells(difference: Difference) -> tuple[str, ...]:
    app, kind, name, tags = difference.identity or ("", "", "", ())
    labels = "".join(f" {tag}={value}" for tag, value in tags)
    last_offsets = {partition: end - 1 for partition, end in _short_names(difference.ends or {}).items()}
    return (
        app,
        f"{name}{labels} ({kind})" if name else "",
        difference.field,
        _number(difference.published),
        _number(difference.replayed),
        ", ".join(f"{partition}: {offset}" for partition, offset in last_offsets.items()),
    )


def _short_names(ends: Mapping[str, int]) -> dict[str, int]:
    """Return the ends by partition, sorted; the topic is left out of the name if there is only one."""
    split = {(name.rpartition(":")[0], int(name.rpartition(":")[2])): end for name, end in ends.items()}
    one_topic = len({topic for topic, _ in split}) == 1
    return {str(p) if one_topic else f"{topic}:{p}": end for (topic, p), end in sorted(split.items())}


def _number(value: Any) -> str:
    return "-" if value is None else str(value)
