"""`tallystream compare [SENT] [PROCESSED]`: print what was sent against what was processed, as a table or as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tallystream.errors import ConfigError
from tallystream_dashboards import formatting
from tallystream_dashboards.data.compare_reading import read_compared, read_sides
from tallystream_dashboards.data.lines import RANGES, Period
from tallystream_dashboards.data.sides import NUMBERS, countable
from tallystream_dashboards.terminal.show import FOUND, Shown, TableSettings, aligned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tallystream_aggregator.sinks.base import PointReader
    from tallystream_dashboards.data.compare import Comparison
    from tallystream_dashboards.data.sides import Compared

BAD, UNKNOWN = 2, 4
"""Exit codes: records were lost or processed twice, and that can't be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareSettings(TableSettings):
    """Settings of `tallystream compare`, and those of every table.

    `names` are the counter of what was sent, if it is known, and that of what was processed. Without a name or a group,
    each counter with positions is shown, of one app or of all. `tags` are KEY=VALUE.

    Raises:
        ConfigError: a number is out of its bounds, or both `watch` and `at_ms` are set, or there are too many names.
    """

    names: tuple[str, ...] = ()
    group: str | None = None
    app: str | None = None
    tags: tuple[str, ...] = ()
    commits_first: bool = False
    range: str = "1h"

    def __post_init__(self) -> None:
        TableSettings.__post_init__(self)
        if len(self.names) > 2:
            raise ConfigError("NAMES", self.names, "give the counter of what was sent and of what was processed")
        for tag in self.tags:
            if "=" not in tag:
                raise ConfigError("--tag", tag, "give KEY=VALUE, as in query=scores")
        if self.range not in RANGES:
            raise ConfigError("--range", self.range, f"give one of {', '.join(RANGES)}")

    def shown(self, reader: PointReader, at_ms: int) -> Shown:
        """Return a comparison, or a line for each counter. The exit code is 0 if none was lost or processed twice."""
        period = Period(at_ms - RANGES[self.range] * 1000, at_ms, at_ms + 1)
        if self.names or self.group is not None:
            return self._one(reader, period)
        found = {}
        for name in map(str, countable(read_sides(reader, self.app, period))):
            compared = self._read(reader, None, name, period)
            if compared is not None:
                found[name] = compared.at(at_ms)
        objects = [{"metric": name, **comparison_json(one)} for name, one in found.items()]
        if not found:
            return Shown.nothing(_nothing(self))
        return Shown(objects, _list(found), "", _code(list(found.values()), with_lost=False))

    def _read(self, reader: PointReader, sent: str | None, counted: str | None, period: Period) -> Compared | None:
        tags = dict(tag.split("=", 1) for tag in self.tags)
        return read_compared(reader, sent, counted, self.group, period, tags=tags, commits_first=self.commits_first)

    def _one(self, reader: PointReader, period: Period) -> Shown:
        sent, counted = (None, None, *self.names)[-2:]
        compared = self._read(reader, sent, counted, period)
        if compared is None:
            return Shown.nothing(_nothing(self))
        now = compared.at(period.end_ms)
        still_ms = compared.still_ms(period.end_ms)
        still = None if still_ms is None else comparison_json(compared.at(still_ms))
        json = comparison_json(now) | {"still_ms": still_ms, "still": still}
        code = _code([now], with_lost=sent is not None or counted is None)
        return Shown([json], _text(now, compared.still_text(period.end_ms)), "", code)


def comparison_json(one: Comparison) -> dict[str, Any]:
    """Return a comparison as a JSON object: each number with its bounds; `at_most` is null if there is none."""
    partitions = [
        {**place._asdict(), "known": list(known), "processed": list(processed)}
        for place, known, processed in one.partitions
    ]
    return {name: asdict(getattr(one, name)) for name in NUMBERS} | {"partitions": partitions, "why": list(one.why)}


def _code(found: Sequence[Comparison], *, with_lost: bool) -> int:
    if any(one.is_bad for one in found):
        return BAD
    unsure = [one.processed_twice for one in found] + [one.lost for one in found if with_lost]
    return UNKNOWN if any(one.at_most != 0 for one in unsure) else FOUND


def _nothing(settings: CompareSettings) -> str:
    if settings.names:
        names = " or ".join(map(repr, settings.names))
        return f"The store has no counter named {names}. Check the name: tallystream sums lists them."
    if settings.group is not None:
        return f"The store has no offsets of the group {settings.group!r}. Check the name: tallystream lag lists them."
    of_app = "" if settings.app is None else f" of the app {settings.app!r}"
    return (
        f"The store has no counter{of_app} with positions. Check the name, and that the app counts with "
        "ConsumerProgress, or sets the positions NAME.position together with the counter NAME."
    )


def _list(found: dict[str, Comparison]) -> str:
    head = ("METRIC", "COUNTED", "TWICE", "AT MOST", "PARTITIONS")
    rows = [
        (
            name,
            formatting.number(one.counted.at_least),
            formatting.number(one.twice.at_least),
            formatting.number(one.processed_twice.at_most),
            formatting.number(len(one.partitions)),
        )
        for name, one in found.items()
    ]
    return aligned([head, *rows], right={1, 2, 3})


def _text(now: Comparison, still: str) -> str:
    numbers = [(text, getattr(now, name)) for name, text in NUMBERS.items()]
    rows = [("", "RECORDS", "CERTAINTY"), *((text, formatting.number(one.at_least), str(one)) for text, one in numbers)]
    text = aligned(rows, right={1})
    if now.partitions:
        head = ("TOPIC", "PARTITION", "OFFSETS", "PROCESSED", "BEFORE", "IN FLIGHT")
        of_partitions = []
        for one in now.partitions:
            sizes = (one.known.size, one.processed.size, one.before, one.in_flight)
            of_partitions.append((*one.place, *map(formatting.number, sizes)))
        text += "\n" + aligned([head, *of_partitions], right={2, 3, 4})
    return "\n".join([text, still, *now.why]) + "\n"
