"""`tallystream compare [SENT] [PROCESSED]`: print what was sent against what was processed, as a table or as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from tallystream.errors import ConfigError
from tallystream_aggregator.sinks.base import is_sum
from tallystream_dashboards import formatting
from tallystream_dashboards.data.compare_reading import read_compared, read_sides
from tallystream_dashboards.data.lines import RANGES, Period
from tallystream_dashboards.data.sides import NUMBERS, compare_all
from tallystream_dashboards.data.stored import read_stored
from tallystream_dashboards.data.sums import OWN
from tallystream_dashboards.exit_codes import BAD, GOOD, UNKNOWN
from tallystream_dashboards.printable import printable
from tallystream_dashboards.terminal.show import Shown, TableSettings, aligned, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tallystream_aggregator.sinks.base import PointReader
    from tallystream_dashboards.data.bounds import Bounds
    from tallystream_dashboards.data.compare import Comparison
    from tallystream_dashboards.data.sides import OfConsumer
    from tallystream_dashboards.data.stored import Stored

_NO_CONSUMER = (
    "The store has no counter with positions. Count what is processed with ConsumerProgress, or compare two counters: "
    "tallystream compare SENT PROCESSED."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareSettings(TableSettings):
    """Settings of `tallystream compare`, and those of every table.

    `names` are the counter of what was sent, if it is known, and that of what was processed. Without a name or a group,
    each counter with positions is shown, of one app or of all. `tags` are KEY=VALUE.

    Raises:
        ConfigError: a number is out of its bounds, both `watch` and `at_ms` are set, or names and options contradict
            each other.
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
        if self.app is not None and (self.names or self.group is not None):
            remedy = "give it without names and --group; a counter of one app is APP/NAME"
            raise ConfigError("--app", self.app, remedy)
        if self.tags and not self.names:
            raise ConfigError("--tag", self.tags[0], "give the counter of what was processed, too")
        for tag in self.tags:
            if "=" not in tag:
                raise ConfigError("--tag", tag, "give KEY=VALUE, as in query=scores")
        if self.range not in RANGES:
            raise ConfigError("--range", self.range, f"give one of {', '.join(RANGES)}")

    def shown(self, reader: PointReader, at_ms: int) -> Shown:
        """Return a comparison, or a line for each consumer. The exit code is 0 if none was lost or processed twice."""
        period = Period(at_ms - RANGES[self.range] * 1000, at_ms, at_ms + 1)
        return self._one(reader, period) if self.names or self.group is not None else self._all(reader, at_ms)

    def _all(self, reader: PointReader, at_ms: int) -> Shown:
        stored = read_stored(reader, at_ms)
        as_of_ms = stored.as_of(at_ms)
        if as_of_ms is None:
            return Shown.nothing(stored.text(at_ms))
        sides = read_sides(reader, None, Period(as_of_ms, as_of_ms, as_of_ms + 1))
        compared = compare_all(sides, as_of_ms, stored, commits_first=self.commits_first)
        apps = {key.app for key in compared}
        if self.app is not None and self.app not in apps:
            what = f"The store has no counter of the app {self.app!r} with positions."
            return Shown.nothing(f"{what} {did_you_mean(self.app, apps)}")
        of_app = {str(key): one for key, one in compared.items() if self.app in (None, key.app)}
        found = {str(key): compared[key] for key in compared if str(key) in of_app and key.taken in sides}
        left_out = [name for name in of_app if name not in found]
        if not found:
            return Shown.nothing(_left_out(left_out) if left_out else _NO_CONSUMER)
        objects = [
            {"metric": name, "sender": one.sender and str(one.sender), **_json(one.compared, stored, as_of_ms)}
            for name, one in found.items()
        ]
        judged = [(one.compared, one.sender is not None) for one in found.values()]
        text = _list(found, [stored.text(at_ms), *([_left_out(left_out)] if left_out else [])])
        return Shown(objects, text, "", _code(judged, stored, at_ms))

    def _one(self, reader: PointReader, period: Period) -> Shown:
        sent, counted = (None, None, *self.names)[-2:]
        tags = dict(tag.split("=", 1) for tag in self.tags)
        compared = read_compared(reader, sent, counted, self.group, period, tags=tags, commits_first=self.commits_first)
        if compared is None:
            return Shown.nothing(self._wrong_name(reader))
        stored, at_ms = compared.stored, period.end_ms
        as_of_ms, as_of = stored.as_of(at_ms), stored.text(at_ms)
        if as_of_ms is None:
            return Shown.nothing(as_of)
        now, still_ms = compared.at(as_of_ms), compared.still_ms(as_of_ms)
        still = None if still_ms is None else comparison_json(compared.at(still_ms))
        json = _json(now, stored, as_of_ms) | {"still_ms": still_ms, "still": still}
        code = _code([(now, sent is not None or counted is None)], stored, at_ms)
        unit = "OFFSETS" if counted is None else "RECORDS"
        return Shown([json], _text(now, unit, [as_of, compared.still_text(as_of_ms)]), "", code)

    def _wrong_name(self, reader: PointReader) -> str:
        """Return which names the store does not have, with those that are like them."""
        known = set(filter(is_sum, reader.measurements()))
        wrong = [name for name in self.names if not any(name == one or name.endswith(f"/{one}") for one in known)]
        if wrong:
            alike = {name for name in known if not name.startswith(OWN)}
            sentences = ((f"The store has no counter {name!r}.", did_you_mean(name, alike)) for name in wrong)
            return " ".join(dict.fromkeys(chain.from_iterable(sentences)))
        if self.names:
            of = " or ".join([*map(repr, self.names), *(f"the group {one!r}" for one in [self.group] if one)])
            return f"The store has nothing of {of}{''.join(f' with {tag}' for tag in self.tags)} together."
        return f"The store has no offsets of the group {self.group!r}: tallystream lag lists them."


def comparison_json(one: Comparison) -> dict[str, Any]:
    """Return a comparison as a JSON object: each number with its bounds; `at_most` is null if there is none."""
    partitions = [
        {**place._asdict(), "known": list(known), "processed": list(processed)}
        for place, known, processed in one.partitions
    ]
    bounds: dict[str, Bounds] = {name: getattr(one, name) for name in NUMBERS}
    numbers = {
        name: {"at_least": one.at_least, "at_most": one.at_most}
        | ({} if one.granted is None else {"granted": one.granted})
        for name, one in bounds.items()
    }
    return numbers | {"partitions": partitions, "why": list(one.why)}


def _json(one: Comparison, stored: Stored, as_of_ms: int) -> dict[str, Any]:
    return {"as_of_ms": as_of_ms, "behind": list(stored.behind), **comparison_json(one)}


def _code(found: Iterable[tuple[Comparison, bool]], stored: Stored, at_ms: int) -> int:
    """Return the exit code by comparisons, each with whether it is known what was sent."""
    if stored.is_late(at_ms):
        return UNKNOWN
    unsure = False
    for one, knows_sent in found:
        if one.is_bad:
            return BAD
        unsure = unsure or one.processed_twice.most != 0 or (knows_sent and one.lost.at_most != 0)
    return UNKNOWN if unsure else GOOD


def _left_out(names: Sequence[str]) -> str:
    return (
        f"Without a count of what was taken (ConsumerProgress.taken) it is not known whether these are consumers: "
        f"{', '.join(names)}. Name one to compare it."
    )


def _list(found: Mapping[str, OfConsumer], sentences: Sequence[str]) -> str:
    head = ("METRIC", "COUNTED", "LOST", "IN FLIGHT", "COUNTED TWICE", "PROCESSED TWICE", "SENT BY")
    numbers = ("counted", "lost", "in_flight", "twice", "processed_twice")
    rows = [
        (
            name,
            *(getattr(compared, number).short for number in numbers),
            formatting.DASH if sender is None else str(sender),
        )
        for name, (sender, compared) in found.items()
    ]
    why = dict.fromkeys(
        sentence if all(sentence in other.compared.why for other in found.values()) else f"{name}: {sentence}"
        for name, one in found.items()
        for sentence in one.compared.why
    )
    return aligned([head, *rows], right={1, 2, 3, 4, 5}) + _lines([*why, *sentences])


def _text(now: Comparison, unit: str, sentences: Sequence[str]) -> str:
    numbers = [(text, getattr(now, name)) for name, text in NUMBERS.items()]
    rows = [("", unit, "CERTAINTY"), *((text, formatting.number(one.at_least), str(one)) for text, one in numbers)]
    text = aligned(rows, right={1})
    if now.partitions:
        head = ("TOPIC", "PARTITION", "OFFSETS", "PROCESSED", "BEFORE", "IN FLIGHT")
        of_partitions = []
        for one in now.partitions:
            sizes = (one.known.size, one.processed.size, one.before, one.in_flight)
            of_partitions.append((*one.place, *map(formatting.number, sizes)))
        text += "\n" + aligned([head, *of_partitions], right={2, 3, 4})
    return text + _lines([*sentences, *now.why])


def _lines(sentences: Iterable[str]) -> str:
    return "\n" + "".join(f"{printable(one)}\n" for one in sentences if one)
