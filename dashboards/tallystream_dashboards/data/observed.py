"""The state of the pipeline by its points in the store: what the aggregator read, living instances, dead letters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tallystream_aggregator.health.internal_metrics import APP as OWN_APP
from tallystream_aggregator.health.internal_metrics import BY_NAME
from tallystream_dashboards.data.sums import REPORTER

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tallystream_aggregator.sinks.base import PointReader, Series

HOUR_MS, TEN_MINUTES_MS = 3_600_000, 600_000
SENT = f"{REPORTER}sent"
"""The metric by which instances are counted: every reporter to Kafka has it."""
RECORDS, DEAD_LETTERS = BY_NAME["tallystream.input.records"].name, BY_NAME["tallystream.table.dead_letters"].name


@dataclass(frozen=True, slots=True)
class AppInstances:
    """The living instances of an app: their number now, the most in the last hour, and since when it is lower."""

    name: str
    living: int
    most: int
    since_ms: int | None


@dataclass(frozen=True, slots=True)
class Observed:
    """The state of the pipeline. Times are epoch ms; None: the store does not have it.

    `read_ms` is when the aggregator last read a record.
    `dead_letters` are those of the last ten minutes, the first of which arrived at `dead_letters_since_ms`.
    """

    read_ms: int | None = None
    apps: tuple[AppInstances, ...] = ()
    dead_letters: int = 0
    dead_letters_since_ms: int | None = None


def read_observed(reader: PointReader, *, end_ms: int, until_ms: int) -> Observed:
    """Read the state of the pipeline at `end_ms`, by points before `until_ms`.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    records = reader.read(
        RECORDS,
        ("count",),
        start_ms=until_ms,
        end_ms=until_ms + 1,
        tags={"app": OWN_APP, "command": "aggregate"},
        last_before=True,
    )
    dead = reader.read(
        DEAD_LETTERS,
        ("max",),
        start_ms=end_ms - TEN_MINUTES_MS,
        end_ms=until_ms,
        tags={"app": OWN_APP},
        last_before=True,
    )
    sent = reader.read(SENT, ("instances",), start_ms=end_ms - HOUR_MS, end_ms=until_ms, last_before=True)
    count, since_ms = dead_letters(dead)
    return Observed(
        read_ms=max((one.times_ms[-1] for one in records), default=None),
        apps=tuple(app_instances(sent)),
        dead_letters=count,
        dead_letters_since_ms=since_ms,
    )


def dead_letters(series: Sequence[Series]) -> tuple[int, int | None]:
    """Return how many dead letters the series count after their first point, and when the first of them arrived."""
    count, since_ms = 0, None
    for one in series:
        numbers = [int(value) if isinstance(value, int | float) else 0 for value in one.values]
        count += max(0, numbers[-1] - numbers[0])
        grown = [ts for ts, number in zip(one.times_ms, numbers, strict=True) if number > numbers[0]]
        since_ms = min([*grown[:1], *([since_ms] if since_ms is not None else [])], default=None)
    return count, since_ms


def app_instances(series: Iterable[Series]) -> list[AppInstances]:
    """Return the living instances of each app, from the `instances` over time; not of Tallystream's own processes."""
    points: dict[str, list[Series]] = {}
    for one in series:
        points.setdefault(one.tags.get("app", ""), []).append(one)
    found = []
    for app, of_app in sorted(points.items()):
        if app == OWN_APP:
            continue
        # Metrics of one app that differ in tags each have their own number, of which the highest counts.
        most, living, since_ms = 0, 0, None
        for one in of_app:
            numbers = [int(value) if isinstance(value, int | float) else 0 for value in one.values]
            most, living = max(most, *numbers), max(living, numbers[-1])
            lower = [ts for ts, number in zip(one.times_ms, numbers, strict=True) if number != numbers[-1]]
            after = [ts for ts in one.times_ms if not lower or ts > lower[-1]]
            since_ms = max(since_ms or 0, after[0])
        found.append(AppInstances(app, living, most, since_ms))
    return found
