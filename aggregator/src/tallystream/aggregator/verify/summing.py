"""The sum of one metric: exact totals of what lives counted, and what the living ones say of this moment."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from tallystream.aggregator.verify import sketches

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tallystream.aggregator.verify.lives import Life, Row

RATES = ("mean_rate", "m1_rate", "m5_rate", "m15_rate")
STAYING = {"counter", "meter", "histogram", "timer", "position"}
"""Types of which something stays when a life is forgotten."""
COUNTED = STAYING - {"position"}
LEAST, MOST = -(2**63), 2**63 - 1


class UnpublishedError(Exception):
    """The sum does not fit, so it is not published (rule 4)."""


@dataclass(slots=True)
class Total:
    """What rows add up to: counts, sums, extremes, positions, bins. `covered`: of how many values the bins are."""

    count: int = 0
    sum: Any = None
    extremes: dict[str, Any] = field(default_factory=dict)
    bins: sketches.Bins = field(default_factory=dict)
    covered: int = 0

    def add(self, row: Row) -> None:
        """Add one row. Floats are added as fractions: nothing is rounded on the way."""
        numbers = row.numbers
        self.count += numbers.get("count", 0)
        if "sum" in numbers:
            self.sum = (0 if self.sum is None else self.sum) + _exact(numbers["sum"])
        for name, choose in (("min", min), ("start", min), ("max", max), ("position", max)):
            if numbers.get(name) is not None:
                self.extremes[name] = choose(numbers[name], self.extremes.get(name, numbers[name]))
        if row.bins is not None:
            sketches.add(self.bins, row.bins)
            self.covered += numbers["count"]


def sum_of(kind: str, held: Iterable[tuple[Life, Row, bool]], retired: int) -> dict[str, Any]:
    """Return the fields of one sum; `held` has each life with its row, and whether the life is living.

    Raises:
        UnpublishedError: a number of it does not fit into 64 bits.
    """
    total = Total()
    instances, now = [], []
    for life, row, living in held:
        total.add(row)
        if living and life.newest(row):
            instances.append(life.instance)
            now.append(row.numbers)
    fields: dict[str, Any] = {"retired": retired if kind in STAYING else 0}
    fields |= {"lives": len(instances), "instances": len(set(instances))}
    if kind in COUNTED:
        fields["count"] = _fitting(total.count)
    if kind in ("histogram", "timer"):
        fields["sum"] = _fitting(total.sum)
        if total.count and total.covered == total.count:
            fields |= sketches.quantiles(total.bins)
    if kind in ("meter", "timer") and now:
        fields |= {rate: _fitting(sum((_exact(one[rate]) for one in now), start=0)) for rate in RATES}
    if kind in ("gauge", "updown"):
        values = [one["value"] for one in now]
        fields["number"] = len(values)
        if values:
            fields["sum"] = _fitting(sum(map(_exact, values), start=0))
            fields |= {"min": _fitting(min(values)), "max": _fitting(max(values))}
            fields["mean"] = fields["sum"] / len(values)
    return fields | {name: _fitting(value) for name, value in total.extremes.items()}


def _exact(number: Any) -> Any:
    return Fraction(number) if isinstance(number, float) else number


def _fitting(number: Any) -> Any:
    if isinstance(number, Fraction):
        try:
            return float(number)
        except OverflowError:
            raise UnpublishedError from None
    if isinstance(number, int) and not LEAST <= number <= MOST:
        raise UnpublishedError
    return number
