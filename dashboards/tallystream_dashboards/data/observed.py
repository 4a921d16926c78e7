"""The state of the pipeline by its points in the store: what the aggregator read, instances, dead letters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tallystream_aggregator.health.internal_metrics import APP as OWN_APP
from tallystream_aggregator.health.internal_metrics import BY_NAME
from tallystream_aggregator.instances import INSTANCES, INSTANCES_NAME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tallystream_aggregator.sinks.base import PointReader, Series

HOUR_MS, TEN_MINUTES_MS = 3_600_000, 600_000
RECORDS, DEAD_LETTERS = BY_NAME["tallystream.input.records"].name, BY_NAME["tallystream.table.dead_letters"].name


@dataclass(frozen=True, slots=True)
class AppInstances:
    """How many instances of an app are living, have ended, and are silent, by the table.

    `fell_silent` is how many more are silent than at the fewest of the last hour, `silent_since_ms` when the number of
    silent ones became what it is; None: there are none.
    """

    name: str
    living: int
    ended: int = 0
    silent: int = 0
    fell_silent: int = 0
    silent_since_ms: int | None = None

    @property
    def text(self) -> str:
        """The three numbers in words."""
        return f"{self.living:,} living, {self.ended:,} ended, {self.silent:,} silent"


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
    count, since_ms = dead_letters(dead)
    return Observed(
        read_ms=max((one.times_ms[-1] for one in records), default=None),
        apps=tuple(read_numbers(reader, end_ms=end_ms, until_ms=until_ms)),
        dead_letters=count,
        dead_letters_since_ms=since_ms,
    )


def dead_letters(series: Sequence[Series]) -> tuple[int, int | None]:
    """Return how many dead letters the series count after their first point, and when the first of them arrived."""
    count, since_ms = 0, None
    for one in series:
        numbers = [_number(value) for value in one.values]
        count += max(0, numbers[-1] - numbers[0])
        grown = [ts for ts, number in zip(one.times_ms, numbers, strict=True) if number > numbers[0]]
        since_ms = min([*grown[:1], *([since_ms] if since_ms is not None else [])], default=None)
    return count, since_ms


def read_numbers(reader: PointReader, *, end_ms: int, until_ms: int) -> list[AppInstances]:
    """Return the numbers of instances of each app, but for those of Tallystream's own processes.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    fields = ("instances", "ended", "silent")
    series = reader.read(INSTANCES_NAME, fields, start_ms=end_ms - HOUR_MS, end_ms=until_ms, last_before=True)
    apps: dict[str, dict[str, Series]] = {}
    for one in series:
        if one.tags.get("metric_type") == INSTANCES and one.times_ms:
            apps.setdefault(one.tags.get("app", ""), {})[one.field] = one
    return [_app_instances(name, found) for name, found in sorted(apps.items()) if name != OWN_APP]


def _app_instances(name: str, fields: dict[str, Series]) -> AppInstances:
    numbers = {field: [_number(value) for value in one.values] for field, one in fields.items()}
    living, ended, silent = (numbers.get(field, [0]) for field in ("instances", "ended", "silent"))
    since_ms = None
    if silent[-1]:
        times_ms = fields["silent"].times_ms
        changes = [at for at, number in enumerate(silent) if number != silent[-1]]
        since_ms = times_ms[changes[-1] + 1 if changes else 0]
    return AppInstances(name, living[-1], ended[-1], silent[-1], silent[-1] - min(silent), since_ms)


def _number(value: object) -> int:
    return int(value) if isinstance(value, int | float) else 0
