"""The sources of a registry: read safely, checked, never twice at once, and started again in the child of a fork."""

from __future__ import annotations

import logging
from math import isfinite
from threading import Lock, Thread
from typing import TYPE_CHECKING
from weakref import WeakSet

import msgspec

from tallystream import record
from tallystream.baselines import identity_of
from tallystream.bridges.base import Reading
from tallystream.bridges.resets import ResetAdjuster
from tallystream.errors import TallystreamError
from tallystream.fork import Step, before_fork
from tallystream.log_throttle import RateLimitFilter
from tallystream.validation import LARGEST, as_number, check_name, check_tags, label

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping

    from tallystream.bridges.base import Source
    from tallystream.clock import Clock, Deadline
    from tallystream.metrics.counter import Counter

FAILED = "tallystream.reporter.source.failed"
WAIT_IN_CHILD = 5.0
"""Seconds that the child of a fork waits for a source at most: a lock may have been held when it was forked off."""

_NUMBERS = ("count", "value", "sum", "min", "max")
_log = logging.getLogger("tallystream.bridges")
_log.addFilter(RateLimitFilter())


class SourceAdapter:
    """One source in one registry.

    Args:
        source: what is read.
        prefix, tags: put before the names, and beside the tags, of its metrics; its own tags go first.
        failed: gives the counter of what could not be reported; asked when prefix and tags were found good.
        clock: the registry's.

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
        _joined.add(self)

    def read(self, taken: Container[str], seen: set[record.Identity]) -> list[record.Metric]:
        """Return the metrics of this moment, and note them in `seen`.

        Left out are those that the record can't have, those whose name is `taken` by the registry's own, and those that
        were seen before: each is counted as failed, and logged once a minute.
        """
        with self.lock:
            if self._resets is None:
                self._fail(self.source.kind, "it could not be read when this process was forked off its parent")
                return []
            readings, _ = self._readings(taken, seen)
            now = self._clock.now().wall_ms / 1000
            return [self._resets.take(reading, now) for reading in readings]

    def reset_after_fork(self) -> None:
        """Take what the source has counted as the parent's; in the child of a fork, before it has threads."""
        self.lock = Lock()
        self._resets = None
        found: list[tuple[list[Reading], bool]] = []
        # A lock of the other library may have been held by a thread that only the parent has.
        thread = Thread(target=lambda: found.append(self._readings((), set())), name="tallystream-source", daemon=True)
        thread.start()
        thread.join(WAIT_IN_CHILD)
        # Without all of what the parent counted, some of it would be counted twice.
        if found and found[0][1]:
            self._resets = ResetAdjuster(found[0][0])

    def _readings(self, taken: Container[str], seen: set[record.Identity]) -> tuple[list[Reading], bool]:
        """Return what can be reported, and whether the source told everything."""
        readings: list[Reading] = []
        try:
            for metric, began in self.source.read():
                try:
                    checked = self._checked(metric, taken, seen)
                except TallystreamError as error:
                    self._fail(label(metric.name, metric.tags), error)
                    continue
                # As with a gauge of the registry's own; NaN is how many a library says that there is no value.
                if isfinite(getattr(checked, "value", 0)):
                    seen.add(identity_of(checked))
                    readings.append(Reading(checked, began))
        except Exception as error:  # noqa: BLE001 - another library's code; its neighbours must be reported
            _log.debug("the failure in full", exc_info=True)
            self._fail(self.source.kind, f"{type(error).__name__}: {error}")
            return readings, False
        return readings, True

    def _checked(self, metric: record.Metric, taken: Container[str], seen: set[record.Identity]) -> record.Metric:
        name = check_name("the name of a metric", self._prefix + metric.name)
        numbers = {field: as_number(n) for field in _NUMBERS if (n := getattr(metric, field, None)) is not None}
        tags = check_tags(name, {**self._tags, **metric.tags})
        metric = msgspec.structs.replace(metric, name=name, tags=tags, **numbers)
        if name in taken:
            raise TallystreamError("the registry has a metric of this name; give add_source a prefix")
        if identity_of(metric) in seen:
            raise TallystreamError("another metric has this name, type and tags; give add_source a prefix or tags")
        count = getattr(metric, "count", 0)
        if not 0 <= count <= record.MAX_COUNT:
            raise TallystreamError("its count is negative, beyond 64 bits, or no number")
        if isinstance(metric, record.Histogram) and not -LARGEST <= metric.sum <= LARGEST:
            raise TallystreamError(f"its sum is {metric.sum}, not from -1e150 to 1e150")
        return metric

    def _fail(self, what: str, reason: object) -> None:
        self._failed.inc()
        _log.error("%s is not reported: %s", f"{what} of {self.source.kind}", reason)


_joined: WeakSet[SourceAdapter] = WeakSet()


def _hold(deadline: Deadline) -> list[Callable[[], None]]:
    # A source can't be read in the child of a fork where a thread of ours was in the midst of a reading.
    return [source.lock.release for source in list(_joined) if source.lock.acquire(timeout=deadline.left())]


before_fork(Step.METRICS, _hold)
