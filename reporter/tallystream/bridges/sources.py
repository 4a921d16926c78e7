"""The adapter of a source: reads it safely, validates its metrics, and adjusts them for resets and forks."""

from __future__ import annotations

import logging
from math import isfinite
from threading import Lock, Thread
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakSet

import msgspec

from tallystream import record
from tallystream.baselines import Values, add, by_identity, subtract
from tallystream.bridges.base import Reading
from tallystream.errors import TallystreamError, is_of_a_signal
from tallystream.fork import Step, before_fork
from tallystream.log_throttle import RateLimitFilter
from tallystream.validation import LARGEST, as_number, check_name, check_tags, label

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping

    from tallystream.bridges.base import Source
    from tallystream.clock import Clock, Deadline
    from tallystream.metrics.counter import Counter

FAILED = "tallystream.reporter.source.failed"
WAIT_IN_CHILD = 5.0
"""The maximum seconds that a forked child waits for a source, since a lock may have been held at the fork."""

_NUMBERS = ("count", "value", "sum", "min", "max")
_log = logging.getLogger("tallystream.bridges")
_log.addFilter(RateLimitFilter())


class _Last(NamedTuple):
    metric: record.Metric
    began: float | None
    read_at: float


class ResetAdjuster:
    """The counts of one source without the effect of resets.

    A count was reset if it is lower than before, as in Prometheus, or if its `began` is later than before and not
    before the last reading. What was counted between the last reading and the reset is lost.

    Args:
        parents: the values counted before this process was forked, which the parent reports.
        forked_at: when it was forked, in epoch seconds.
    """

    def __init__(self, parents: Iterable[Reading] = (), forked_at: float = 0.0) -> None:
        self._parents: Values = by_identity(reading.metric for reading in parents)
        self._before_reset: Values = {}
        self._last = {reading.metric.identity: _Last(*reading, forked_at) for reading in parents}

    def adjust(self, reading: Reading, now: float) -> record.Metric:
        """Return the metric with all counts of this process; `now` is when the reading began, in epoch seconds."""
        metric, identity = reading.metric, reading.metric.identity
        last = self._last.get(identity)
        if last is not None and _was_reset(reading, last):
            self._before_reset[identity] = add(last.metric, self._before_reset.get(identity))
        self._last[identity] = _Last(*reading, now)
        [total] = subtract([add(metric, self._before_reset.get(identity))], self._parents)
        if isinstance(total, record.Histogram) and identity in self._parents:
            return msgspec.structs.replace(total, min=None, max=None)  # they may be the parent's
        return total


def _was_reset(reading: Reading, last: _Last) -> bool:
    before = getattr(last.metric, "count", None)
    if before is None:
        return False
    if getattr(reading.metric, "count", before) < before:
        return True
    # Some collectors compute `began` again at each reading, with small differences.
    began, earlier = reading.began, last.began
    return began is not None and earlier is not None and began > earlier and began >= last.read_at


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
        """Return the current metrics, and add them to `seen`.

        Metrics that are invalid in a record, whose name is in `names` (the registry's own names), or that were seen
        before are skipped. Each is counted as a failure, and logged at most once a minute.
        """
        with self.lock:
            if self._resets is None:
                self._fail(self.source.kind, "it could not be read when this process was forked off its parent")
                return []
            now = self._clock.wall_ms() / 1000  # before the reading, since a count may be reset while others are read
            readings, _ = self._readings(names, seen)
            return [self._resets.adjust(reading, now) for reading in readings]

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

    def _readings(self, names: Container[str], seen: set[record.Identity]) -> tuple[list[Reading], bool]:
        """Return the metrics that can be reported, and whether the source was read completely."""
        readings: list[Reading] = []
        try:
            for metric, began in self.source.read():
                try:
                    checked = self._checked(metric, names, seen)
                    # As for gauges of the registry; many libraries use NaN for a missing value.
                    has_value = isfinite(getattr(checked, "value", 0))
                except Exception as error:  # noqa: BLE001 - a number may have any type
                    self._fail(label(metric.name, metric.tags), error)
                    continue
                if has_value:
                    seen.add(checked.identity)
                    readings.append(Reading(checked, began))
        except BaseException as error:  # another library's code; the other metrics must be reported
            if is_of_a_signal(error):
                raise
            _log.debug("the failure in full", exc_info=True)
            self._fail(self.source.kind, f"{type(error).__name__}: {error}")
            return readings, False
        return readings, True

    def _checked(self, metric: record.Metric, names: Container[str], seen: set[record.Identity]) -> record.Metric:
        name = check_name("the name of a metric", self._prefix + metric.name)
        numbers = {field: as_number(n) for field in _NUMBERS if (n := getattr(metric, field, None)) is not None}
        tags = check_tags(name, {**self._tags, **metric.tags})
        metric = msgspec.structs.replace(metric, name=name, tags=tags, **numbers)
        if name in names:
            raise TallystreamError("the registry has a metric of this name; give add_source a prefix")
        if metric.identity in seen:
            raise TallystreamError("another metric has this name, type and tags; give add_source a prefix or tags")
        count = getattr(metric, "count", 0)
        if not 0 <= count <= record.MAX_COUNT:
            raise TallystreamError("its count is negative, above 64 bits, or not a number")
        if isinstance(metric, record.Histogram) and not -LARGEST <= metric.sum <= LARGEST:
            raise TallystreamError(f"its sum is {metric.sum}, not from -1e150 to 1e150")
        return metric

    def _fail(self, what: str, reason: object) -> None:
        self._failed.inc()
        _log.error("%s is not reported: %s", f"{what} of {self.source.kind}", reason)


_adapters: WeakSet[SourceAdapter] = WeakSet()


def _pause_all(deadline: Deadline) -> list[Callable[[], None]]:
    # If a thread were reading a source at the fork, the child could not read it.
    return [adapter.lock.release for adapter in list(_adapters) if adapter.lock.acquire(timeout=deadline.left())]


before_fork(Step.METRICS, _pause_all)
