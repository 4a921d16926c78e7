"""The protocols of sinks, which write to a store, and of readers."""

from __future__ import annotations

import dataclasses
import logging
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tallystream.errors import TallystreamError
from tallystream_aggregator.instances import INSTANCES_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

log = logging.getLogger(__name__)


def storable(value: Field) -> bool:
    """Return whether a value can be stored. Floats must be finite, integers must fit into signed 64 bits."""
    if isinstance(value, float):
        return math.isfinite(value)
    return not isinstance(value, int) or -(2**63) <= value < 2**63


def unstorable(point: Point) -> list[Field]:
    """Return the values of a point, including its time, that no store can hold."""
    return [value for value in (point.ts_ms, *point.fields.values()) if not storable(value)]


def numbers(point: Point) -> dict[str, int | float]:
    """Return the fields of a point that are numbers, for a store that has no texts. True is 1."""
    fields = {name: value for name, value in point.fields.items() if not isinstance(value, str)}
    return {name: int(value) if isinstance(value, bool) else value for name, value in fields.items()}


RESERVED = frozenset({"app", "metric_type"})
"""The tags that every sum has in addition to the user's."""

INSTANCE_PREFIX = "instance:"
"""The prefix of measurements of single instances, so that no query adds an instance to its sum."""

LAG_MEASUREMENTS = (
    *("tallystream.lag", "tallystream.lag.ends", "tallystream.lag.groups", "tallystream.lag.rounds"),
    "tallystream.records",
)
"""The measurements of the lag collector. The shipper writes all others."""

EVENTS = "tallystream.events"
"""The measurement of restarts and other events."""


def is_sum(measurement: str) -> bool:
    """Return whether a measurement of the store has the sums of a metric, by its name."""
    others = (EVENTS, INSTANCES_NAME, *LAG_MEASUREMENTS)
    return measurement not in others and not measurement.startswith(INSTANCE_PREFIX)


def filled(text: str) -> str:
    """Return a text for a store that has no empty one: that is `%`, and a text of only `%` gets another `%`."""
    return text if text.strip("%") else text + "%"


Field = int | float | str | bool


@dataclass(frozen=True, slots=True)
class Point:
    """One point of one series. `ts_ms` is in epoch ms. Names and tags may be any text, including the empty one.

    Floats must be finite, and integers must fit into signed 64 bits. `sketch` has the values that the field `count`
    counts, as JSON; it may be empty.
    """

    measurement: str
    tags: Mapping[str, str]
    fields: Mapping[str, Field]
    ts_ms: int
    sketch: bytes = b""


TEXTS = frozenset({"text", "life", "status", "reason", "broker_state", "drain", "problems", "waiting"})
FLAGS = frozenset({"overflow", "final", "gone", "stale", "exact"})
"""The fields with texts, and those with truth values. All others have numbers."""


def is_own(field: str, value: object) -> bool:
    """Return whether Tallystream writes such a value to a field. Somebody else may have written what a store has."""
    if field in TEXTS:
        return isinstance(value, str)
    if isinstance(value, bool) or field in FLAGS:
        return isinstance(value, bool) and field in FLAGS
    return isinstance(value, int | float) and storable(value)


@dataclass(frozen=True, slots=True)
class Series:
    """The values of one field of one series: `values[i]` at `times_ms[i]`, in ascending epoch ms."""

    measurement: str
    tags: Mapping[str, str]
    field: str
    times_ms: list[int] = dataclasses.field(default_factory=list)
    values: list[Field] = dataclasses.field(default_factory=list)


class SinkUnavailableError(TallystreamError):
    """The store is unreachable or overloaded. The same write may succeed later, after `retry_after_s` seconds."""

    def __init__(self, message: str, *, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Refused(NamedTuple):
    """A point that a store never accepts, and why. `point` is None if the store does not say which one it is."""

    point: Point | None
    reason: str


def refuse(store: str, point: Point, reason: object) -> Refused:
    """Log that a store never accepts a point, and return it."""
    message = f"{store} rejects a point of {point.measurement!r} permanently: {reason}"
    log.warning("%s", message)
    return Refused(point, message)


def sift(
    store: str, points: Iterable[Point], unfit: Callable[[Point], object] = unstorable
) -> tuple[list[Point], list[Refused]]:
    """Return the points that fit, and the others. `unfit` returns the reason, or a false value."""
    good: list[Point] = []
    bad: list[Refused] = []
    for point in points:
        if reason := unfit(point):
            bad.append(refuse(store, point, reason))
        else:
            good.append(point)
    return good, bad


def send_in_halves(
    store: str,
    points: Sequence[Point],
    send: Callable[[Sequence[Point]], str | None],
    refuses: Callable[[str, int], bool] = lambda _, number: number == 1,
) -> Iterator[Refused]:
    """Send points in one request. If the store refuses it, send halves, until it refuses each point of a part.

    `send` returns why the store refuses the points, None if it accepts them. `refuses` says whether it refuses, for
    that reason, each of so many.
    """
    reason = send(points)
    if reason is not None and refuses(reason, len(points)):
        yield from (refuse(store, point, reason) for point in points)
    elif reason is not None:
        middle = len(points) // 2
        yield from send_in_halves(store, points[:middle], send, refuses)
        yield from send_in_halves(store, points[middle:], send, refuses)


class Sink(Protocol):
    """A store that takes points.

    Delivery: at least once. When `write` returns, its points are durable in the store.
    Writing the same points again changes nothing. A point is identified by (measurement, tags, ts_ms): the fields of
    two points with the same identity are merged, and the later value wins. A store of the latest point only keeps the
    last one that is written. Points of one series are written in order.
    A point that the store never accepts is logged with the reason and returned. The other points are written. A sink is
    used by one thread at a time.
    """

    def setup(self) -> None:
        """Prepare the store or check that it can be written. It is safe to call this again.

        Raises:
            ConfigError: the settings are wrong, for example the token, so waiting does not help.
            SinkUnavailableError: the store does not answer.
        """

    def write(self, points: Sequence[Point]) -> list[Refused]:
        """Write the points, in order, and return those that the store never accepts when the others are durable.

        Raises:
            ConfigError: the settings are wrong, so waiting does not help.
            SinkUnavailableError: nothing, only a part or all was written; write the same points again later.
        """

    def close(self) -> None:
        """Release all resources. It is safe to call this again."""


class PointReader(Protocol):
    """A store that can be read. Every call may raise SinkUnavailableError."""

    def measurements(self) -> list[str]:
        """Return the names of all measurements, sorted."""

    def read(
        self,
        measurement: str,
        fields: Sequence[str],
        *,
        start_ms: int,
        end_ms: int,
        tags: Mapping[str, str] | None = None,
        last_before: bool = False,
        newest: bool = False,
    ) -> list[Series]:
        """Return the values with start_ms <= time < end_ms of `fields`, for each series whose tags include `tags`.

        Series are sorted by tags, then by field. Series without a value in that time are left out, and values that are
        not Tallystream's own (`is_own`).

        With `last_before`, each series also has its last value before `start_ms`, at its own time, so a sum that has
        not changed recently is included. With `newest`, values before the newest point of a series may be left out.
        """

    def close(self) -> None:
        """Release all resources. It is safe to call this again."""


class Store(Sink, PointReader, Protocol):
    """A sink that can be read, and from which points can be deleted."""

    def delete(self, measurement: str, *, start_ms: int, end_ms: int) -> None:
        """Delete the points of all series of `measurement` with start_ms <= time < end_ms. Safe to repeat.

        Raises:
            SinkUnavailableError: the store does not answer.
        """
