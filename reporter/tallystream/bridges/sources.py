"""The adapter of a source: reads it safely, validates its metrics, and adjusts them for resets and forks."""

from __future__ import annotations

import logging
from functools import reduce
from math import isfinite
from threading import Lock, Thread
from typing import TYPE_CHECKING
from weakref import WeakSet

import msgspec

from tallystream import record
from tallystream.baselines import add, by_identity, subtract, widen
from tallystream.bridges.base import Reading
from tallystream.errors import TallystreamError, is_of_a_signal
from tallystream.log_throttle import RateLimitFilter
from tallystream.metric_types import GROWING, WHOLE
from tallystream.process.fork import Step, before_fork
from tallystream.validation import LARGEST, as_number, check_name, check_tags, label

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping

    from tallystream.bridges.base import Source
    from tallystream.clock import Clock, Deadline
    from tallystream.metrics.counter import Counter

FAILED = "tallystream.reporter.source.failed"
WAIT_IN_CHILD = 5.0
"""The maximum seconds that a forked child waits for a source, since a lock may have been held at the fork."""

_DUPLICATE = "the source has another metric of this name, type and tags; rename one of them, or change its tags"
_NOT_NUMBERS = ("name", "tags", "sketch")
_log = logging.getLogger("tallystream.bridges")
_log.addFilter(RateLimitFilter())


class _Stream(msgspec.Struct, eq=False):
    last: Reading
    read_at: float
    parents: record.Metric | None = None
    before_reset: record.Metric | None = None

    def total(self) -> record.Metric:
        total = add(self.last.metric, self.before_reset)
        if self.parents is not None:
            [total] = subtract([total], {total.identity: self.parents})
        return total


class ResetAdjuster:
    """The values of one source without the effect of resets.

    A count or a sum was reset if it is lower than before, as in Prometheus, or if its `began` is later than before and
    not before the last reading. What was counted between the last reading and the reset is lost. Extremes only widen.

    Args:
        parents: the values counted before this process was forked, which the parent reports.
        forked_at: when it was forked, in epoch seconds.
    """

    def __init__(self, parents: Iterable[Reading] = (), forked_at: float = 0.0) -> None:
        self._streams: dict[record.Identity, dict[str, _Stream]] = {}
        for reading in parents:
            streams = self._streams.setdefault(reading.metric.identity, {})
            streams[reading.stream] = _Stream(reading, forked_at, reading.metric)

    def adjust(self, reading: Reading, now: float) -> record.Metric:
        """Return the metric with all counts of this process; `now` is when the reading began, in epoch seconds.

        The metric has the counts of all its streams. A stream that is no longer read keeps its last value.
        """
        if isinstance(reading.metric, record.Gauge | record.UpDown):
            return reading.metric  # nothing is kept of it, as it may not come back
        streams = self._streams.setdefault(reading.metric.identity, {})
        stream = streams.setdefault(reading.stream, _Stream(reading, now))
        if _was_reset(reading, stream):
            stream.before_reset = add(stream.last.metric, stream.before_reset)
        stream.last = reading._replace(metric=widen(reading.metric, stream.last.metric))
        stream.read_at = now
        total = reduce(add, [one.total() for one in streams.values()])
        if isinstance(total, record.Histogram) and any(one.parents is not None for one in streams.values()):
            return msgspec.structs.replace(total, min=None, max=None)  # they may be the parent's
        return total


def _was_reset(reading: Reading, stream: _Stream) -> bool:
    last, field = stream.last, GROWING.get(reading.metric.type)
    if field is None:
        return False
    if getattr(reading.metric, field) < getattr(last.metric, field):
        return True
    # Some collectors compute `began` again at each reading, with small differences.
    began, earlier = reading.began, last.began
    return began is not None and earlier is not None and began > earlier and began >= stream.read_at


class SourceAdapter:
    """One source in one registry.

    Args:
        source: the source to read.
        prefix, tags: added to the names and tags of its metrics. A metric's own tags take precedence.
        failed: returns the counter of failures. It is called after `prefix` and `tags` have been validated.
        clock: the clock of the registry.

    Raises:
        ConfigError: the prefix or a tag can't be used.
    """

    def __init__(
        self, source: Source, prefix: str, tags: Mapping[str, str] | None, failed: Callable[[], Counter], clock: Clock
    ) -> None:
        self.source = source
        self._prefix = check_name("prefix", prefix) + "." if prefix else ""
        self._tags = check_tags(prefix, tags)
        self._failed, self._clock = failed(), clock
        self._resets: ResetAdjuster | None = ResetAdjuster()
        self.lock = Lock()
        _adapters.add(self)

    def read(self, names: Container[str], seen: set[record.Identity]) -> list[record.Metric]:
        """Return the current metrics, and add their identities to `seen`.

        Metrics that are invalid in a record, whose name is in `names` (the registry's own names), or that were seen
        before are skipped. Each is counted as a failure, and logged at most once a minute.
        """
        with self.lock:
            if self._resets is None:
                self._fail(self.source.kind, "it could not be read when this process was forked off its parent")
                return []
            now = self._clock.wall_ms() / 1000  # before the reading, since a count may be reset while others are read
            readings, _ = self._readings(names, seen)
            metrics = by_identity(self._resets.adjust(reading, now) for reading in readings)
            seen.update(metrics)
            return list(metrics.values())

    def reset_after_fork(self) -> None:
        """Attribute all present counts to the parent: in the child of a fork, before it has threads."""
        self.lock = Lock()
        self._resets = None
        forked_at = self._clock.wall_ms() / 1000
        results: list[tuple[list[Reading], bool]] = []
        # A lock of the other library may have been held by a thread that only the parent has.
        thread = Thread(
            target=lambda: results.append(self._readings((), set())), name="tallystream-source", daemon=True
        )
        thread.start()
        thread.join(WAIT_IN_CHILD)
        # If a count of the parent were missing, it would be counted twice.
        if results and results[0][1]:
            self._resets = ResetAdjuster(results[0][0], forked_at)

    def _readings(self, names: Container[str], seen: Container[record.Identity]) -> tuple[list[Reading], bool]:
        """Return the metrics that can be reported, and whether the source was read completely."""
        readings: dict[tuple[record.Identity, str], Reading] = {}
        try:
            for metric, began, stream in self.source.read():
                try:
                    checked = self._checked(metric, names, seen)
                    # As for gauges of the registry; many libraries use NaN for a missing value.
                    has_value = isfinite(getattr(checked, "value", 0))
                except Exception as error:  # noqa: BLE001 - a number may have any type
                    self._fail(label(metric.name, metric.tags), error)
                    continue
                # Other types are not added up: unlike a count, a value that is no longer read does not hold.
                key = checked.identity, stream if checked.type in GROWING else ""
                if key in readings:
                    self._fail(label(metric.name, metric.tags), _DUPLICATE)
                elif has_value:
                    readings[key] = Reading(checked, began, key[1])
        except BaseException as error:  # another library's code; the other metrics must be reported
            if is_of_a_signal(error):
                raise
            _log.debug("the failure in full", exc_info=True)
            self._fail(self.source.kind, f"{type(error).__name__}: {error}")
            return list(readings.values()), False
        return list(readings.values()), True

    def _checked(self, metric: record.Metric, names: Container[str], seen: Container[record.Identity]) -> record.Metric:
        name = check_name("the name of a metric", self._prefix + metric.name)
        tags = check_tags(name, {**self._tags, **metric.tags})
        metric = msgspec.structs.replace(metric, name=name, tags=tags, **_numbers(metric))
        if name in names:
            raise TallystreamError("the registry has a metric of this name; give add_source a prefix")
        if metric.identity in seen:
            raise TallystreamError("another source has a metric of this name, type and tags; give add_source a prefix")
        return metric

    def _fail(self, what: str, reason: object) -> None:
        self._failed.inc()
        _log.error("%s is not reported: %s", f"{what} of {self.source.kind}", reason)


def _numbers(metric: record.Metric) -> dict[str, float]:
    """Return the numbers of a metric by field, as the record needs them.

    Raises:
        TallystreamError: a number is out of the bounds of its field.
    """
    fields = [name for name in metric.__struct_fields__ if name not in _NOT_NUMBERS]
    numbers = {name: as_number(value) for name in fields if (value := getattr(metric, name)) is not None}
    lowest = 0.0 if isinstance(metric, record.FloatCounter) else -LARGEST
    for name, number in numbers.items():
        if name in WHOLE:
            if not 0 <= number <= record.MAX_COUNT or number != int(number):
                raise TallystreamError(f"its {name} is negative, above 64 bits, or not a whole number")
            numbers[name] = int(number)
        elif name == "sum" and not lowest <= number <= LARGEST:
            raise TallystreamError(f"its sum is {number}, not from {lowest:g} to 1e150")
        elif name != "value" and not isfinite(number):
            raise TallystreamError(f"its {name} is {number}, not a finite number")
    return numbers


_adapters: WeakSet[SourceAdapter] = WeakSet()


def _pause_all(deadline: Deadline) -> Iterator[Callable[[], None]]:
    # If a thread were reading a source at the fork, the child could not read it.
    for adapter in list(_adapters):
        if adapter.lock.acquire(timeout=deadline.left()):
            yield adapter.lock.release


before_fork(Step.METRICS, _pause_all)
