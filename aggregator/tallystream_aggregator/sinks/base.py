"""The protocol that every sink implements, and the one that every store to be read implements."""

from __future__ import annotations

import dataclasses
import logging
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tallystream.errors import TallystreamError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def storable(value: Field) -> bool:
    """Tell whether a value can be stored: a float is finite, an integer has 64 bits with its sign."""
    if isinstance(value, float):
        return math.isfinite(value)
    return not isinstance(value, int) or -(2**63) <= value < 2**63


def refused(point: Point) -> list[Field]:
    """Return those of a point's values, its time among them, that no store can hold."""
    return [value for value in (point.ts_ms, *point.fields.values()) if not storable(value)]


RESERVED = frozenset({"app", "metric_type"})
"""The tags that every sum has beside its own."""

_PREFIX = "tag_"


def free(name: str, reserved: frozenset[str] = RESERVED) -> str:
    """Return a user's tag name as the store has it: another one, where the name is ours.

    What already has the prefix (tag_app) gets one more, so that no two names meet.
    """
    bare = name
    while bare.startswith(_PREFIX):
        bare = bare[len(_PREFIX) :]
    return _PREFIX + name if bare in reserved else name


log = logging.getLogger(__name__)

Field = int | float | str | bool


@dataclass(frozen=True, slots=True)
class Point:
    """One point of one series. `ts_ms` is epoch milliseconds; names and tags may be any text, the empty one too.

    A float is finite, an integer has 64 bits with its sign.
    """

    measurement: str
    tags: Mapping[str, str]
    fields: Mapping[str, Field]
    ts_ms: int


@dataclass(frozen=True, slots=True)
class Series:
    """The values of one field of one series over time: `times_ms[i]` (ascending, epoch ms) goes with `values[i]`."""

    measurement: str
    tags: Mapping[str, str]
    field: str
    times_ms: list[int] = dataclasses.field(default_factory=list)
    values: list[Field] = dataclasses.field(default_factory=list)


class SinkUnavailableError(TallystreamError):
    """The store can't be reached now, or is overloaded: the same write may succeed later."""


class Rejections:
    """What one sink refuses permanently. `listen` is called with each point and the reason, if it is set."""

    def __init__(self, store: str) -> None:
        self._store = store
        self.number = 0
        self.listen: Callable[[Point, str], None] | None = None

    def add(self, point: Point, reason: object) -> None:
        """Take one."""
        self.number += 1
        said = f"{self._store} rejects a point of {point.measurement!r} permanently: {reason}"
        log.warning("%s", said)
        if self.listen is not None:
            self.listen(point, said)


class Sink(Protocol):
    """A store that takes points.

    Delivery: at least once. When `write` returns, its points are durable in the store, or `flush` makes them so.
    Writing the same points again changes nothing: a point is identified by (measurement, tags, ts_ms), and of two with
    the same identity the fields are merged, the later value winning. Points of one series are written in order.
    A point that the store will never take is refused: logged with the reason, counted in `rejected` and told to whoever
    listens to `refusals`; its neighbours are written. A sink is used by one thread at a time.
    """

    refusals: Rejections

    @property
    def rejected(self) -> int:
        """How many points were refused permanently."""

    def setup(self) -> None:
        """Make what the sink writes to, if it is missing; safe to call again.

        Raises:
            ConfigError: the settings can't work (a bad token, say), whatever one waits.
            SinkUnavailableError: the store does not answer.
        """

    def write(self, points: Sequence[Point]) -> None:
        """Write the points, in order.

        Raises:
            ConfigError: the settings can't work, whatever one waits.
            SinkUnavailableError: nothing or only a part was written; write the same points again later.
        """

    def flush(self) -> None:
        """Return when every point written so far is durable.

        Raises:
            SinkUnavailableError: it is not known; write what was written since the last flush again later.
        """

    def close(self) -> None:
        """Flush and release what is held; safe to call again."""


class Deletable(Protocol):
    """A store in which a span of a measurement can be deleted; every call may raise SinkUnavailableError."""

    def delete(self, measurement: str, *, start_ms: int, end_ms: int) -> None:
        """Delete the points of every series of `measurement` with start_ms <= time < end_ms; safe to call again."""


class PointReader(Protocol):
    """A store that the page can read. Every call may raise SinkUnavailableError."""

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
    ) -> list[Series]:
        """Return the fields of every series of `measurement` whose tags include `tags`: start_ms <= time < end_ms.

        Series are sorted by tags, then by field; one without a value in that time is not there.

        With `last_before`, each series that has a value before `start_ms` begins with its last one, at its own time, so
        that a sum that has not changed lately is still seen.
        """

    def close(self) -> None:
        """Release what is held; safe to call again."""
