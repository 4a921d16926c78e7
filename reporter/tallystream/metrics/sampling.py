"""The kinds of samples that histograms and timers keep: selected for one metric, or for a whole registry."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Protocol

import msgspec

from tallystream.errors import ConfigError
from tallystream.metrics.reservoirs import (
    DecayingReservoir,
    SlidingTimeWindowReservoir,
    SlidingWindowReservoir,
    UniformReservoir,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tallystream.metrics.reservoirs import Reservoir


class Sampling(Protocol):
    """The kind of a sample. Kinds are compared: requesting a metric again with an equal one is not an error."""

    def new(self, now: float) -> Reservoir:
        """Return an empty sample; `now` is in monotonic seconds."""


class ExponentiallyDecaying(msgspec.Struct, frozen=True):
    """The default, as in Dropwizard: `size` values, mostly of about the last five minutes.

    Raises:
        ConfigError: a number is out of bounds.
    """

    size: int = 1028
    alpha: float = 0.015

    def __post_init__(self) -> None:
        _check_size(self.size)
        _check_positive({"alpha": self.alpha})

    def new(self, now: float) -> Reservoir:  # noqa: ARG002 - an empty sample has no beginning
        """Return an empty sample."""
        return DecayingReservoir(self.size, self.alpha)


class SlidingWindow(msgspec.Struct, frozen=True):
    """The last `size` values, of any age.

    Raises:
        ConfigError: the size is out of bounds.
    """

    size: int = 1028

    def __post_init__(self) -> None:
        _check_size(self.size)

    def new(self, now: float) -> Reservoir:  # noqa: ARG002 - a value's age does not matter
        """Return an empty sample."""
        return SlidingWindowReservoir(self.size)


class SlidingTimeWindow(msgspec.Struct, frozen=True):
    """The values of the last `seconds`, at most the newest `size` of them.

    Raises:
        ConfigError: a number is out of bounds.
    """

    seconds: float
    size: int = 10_000

    def __post_init__(self) -> None:
        _check_size(self.size)
        _check_positive({"seconds": self.seconds})

    def new(self, now: float) -> Reservoir:  # noqa: ARG002 - an empty window has no beginning
        """Return an empty sample."""
        return SlidingTimeWindowReservoir(self.seconds, self.size)


class Uniform(msgspec.Struct, frozen=True):
    """A uniform sample of `size` of all values of the process.

    Raises:
        ConfigError: the size is out of bounds.
    """

    size: int = 1028

    def __post_init__(self) -> None:
        _check_size(self.size)

    def new(self, now: float) -> Reservoir:  # noqa: ARG002 - a value's age does not matter
        """Return an empty sample."""
        return UniformReservoir(self.size)


def _check_size(size: int) -> None:
    if not isinstance(size, int) or not 1 <= size <= 1_000_000:
        raise ConfigError("size", size, "a sample keeps 1 to 1,000,000 values")


def _check_positive(numbers: Mapping[str, float]) -> None:
    for name, number in numbers.items():
        if not isfinite(number) or number <= 0:
            raise ConfigError(name, number, "give a number above 0")


DEFAULT_SAMPLING: Sampling = ExponentiallyDecaying()
