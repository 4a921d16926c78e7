"""The distribution of a value."""

from __future__ import annotations

from math import sqrt
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

from tallystream.reporter import record
from tallystream.reporter._numbers import LARGEST
from tallystream.reporter.pyformance_compat._clock import WALL, Clock
from tallystream.reporter.pyformance_compat._distribution import Distribution
from tallystream.reporter.pyformance_compat._log import log
from tallystream.reporter.pyformance_compat.stats.samples import DEFAULT_ALPHA, DEFAULT_SIZE, ExpDecayingSample

if TYPE_CHECKING:
    from tallystream.reporter.pyformance_compat.stats.snapshot import Snapshot

NO_MIN, NO_MAX = 2147483647.0, -2147483647.0
"""What pyformance's histogram says of no values at all."""

_QUANTILES = {"p50": 0.5, "p75": 0.75, "p95": 0.95, "p98": 0.98, "p99": 0.99, "p999": 0.999}


class Sample(Protocol):
    """What keeps some of the values for the percentiles."""

    def update(self, value: float) -> None:
        """Take one value."""

    def get_snapshot(self) -> Snapshot:
        """Return the values kept."""

    def clear(self) -> None:
        """Forget all."""


class Histogram:
    """Count, sum, mean, variance, least and greatest of what was added since `clear()`, and percentiles of a sample.

    In the record count, sum, min, max and the sketch are of everything that was ever added: `clear()` does not reach
    them, for counts never fall there.
    """

    _sum: float
    _min: float | None
    _max: float | None
    _ever: Distribution

    def __init__(
        self,
        size: int = DEFAULT_SIZE,
        alpha: float = DEFAULT_ALPHA,
        clock: Clock = WALL,
        sample: Sample | None = None,
    ) -> None:
        self.clock = clock
        self.sample: Sample = ExpDecayingSample(size, alpha, clock) if sample is None else sample
        self.tallystream_start_anew()

    def add(self, value: float) -> None:
        """Take one value; NaN and magnitudes above 1e150 are left out, with a line in the log.

        Raises:
            TypeError: `value` is no number; nothing has changed then.
        """
        if not -LARGEST <= value <= LARGEST:
            what = "a histogram leaves out %s, which is not from -1e150 to 1e150"
            log.warning(what, str(value))  # a NaN equals no other
            return
        with self._lock:
            total = self._sum + value  # first of all: it refuses numbers that don't mix with floats
            self.sample.update(value)
            self._count += 1
            self._min = value if self._min is None or value < self._min else self._min
            self._max = value if self._max is None or value > self._max else self._max
            self._sum = total
            self._follow_variance(value)
            self._ever.add(value)

    def _follow_variance(self, value: float) -> None:
        # Welford's recurrence (Knuth, The Art of Computer Programming, volume 2, 4.2.2).
        if self._count == 1:
            self._mean, self._squares = value, 0.0
            return
        before = value - self._mean
        self._mean = self._mean + before / self._count
        self._squares = self._squares + before * (value - self._mean)

    def clear(self) -> None:
        """Forget all values."""
        with self._lock:
            self._forget()

    def get_count(self) -> float:
        """Return how many values were added, as a float."""
        return float(self._count)

    def get_sum(self) -> float:
        """Return their sum."""
        return self._sum

    def get_max(self) -> float:
        """Return the greatest, -2147483647.0 of none."""
        return NO_MAX if self._max is None else self._max

    def get_min(self) -> float:
        """Return the least, 2147483647.0 of none."""
        return NO_MIN if self._min is None else self._min

    def get_mean(self) -> float:
        """Return the mean, 0 of none."""
        with self._lock:
            return self._sum / self._count if self._count else 0

    def get_var(self) -> float:
        """Return the variance of a sample of a population (divided by one less than the count), 0 of one or none."""
        with self._lock:
            return self._squares / (self._count - 1) if self._count > 1 else 0

    def get_stddev(self) -> float:
        """Return the square root of the variance."""
        return sqrt(self.get_var()) if self._count else 0

    def get_snapshot(self) -> Snapshot:
        """Return the values that the sample keeps."""
        with self._lock:
            return self.sample.get_snapshot()

    def _forget(self) -> None:
        self.sample.clear()
        self._count = 0
        self._sum = 0.0
        self._min = self._max = None
        self._mean, self._squares = 0.0, 0.0

    def tallystream_join(self, name: str, earlier: Any) -> None:  # noqa: ARG002 - all metrics are told their name
        """Count on in the record from what the one before left."""
        if earlier is not None:
            with self._lock:
                self._ever.merge(earlier)

    def tallystream_leave(self) -> Distribution:
        """Return everything ever added, and forget it."""
        with self._lock:
            ever, self._ever = self._ever, Distribution()
            return ever

    def tallystream_fields(self) -> dict[str, Any]:
        """Return count, sum, min, max, sketch and the view of the sample as the record names them."""
        with self._lock:
            fields = self._ever.fields()
            kept = self.sample.get_snapshot()
            mean = self._sum / self._count if self._count else 0.0
        if self._count and kept.get_size():
            fields |= {name: kept.get_percentile(share) for name, share in _QUANTILES.items()}
            fields |= {"mean": mean, "stddev": self.get_stddev()}
        return fields

    def tallystream_read(self, name: str, tags: dict[str, str]) -> record.Metric | None:
        """Return the present values in the record's form."""
        return record.Histogram(name=name, tags=tags, **self.tallystream_fields())

    def tallystream_start_anew(self) -> None:
        """Forget all values, with a new lock: for the child of a fork."""
        self._lock = Lock()
        self._ever = Distribution()
        self._forget()
