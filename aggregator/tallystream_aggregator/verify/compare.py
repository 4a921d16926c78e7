"""Compares the fields of a published sum with those of the replay."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LASTING = ("count", "sum", "min", "max", "start", "position", "p50", "p75", "p95", "p98", "p99", "p999", "retired")
"""Fields that need no living lives, except for gauges and updowns."""

MOMENTARY = ("mean", "number", "mean_rate", "m1_rate", "m5_rate", "m15_rate", "lives", "instances", "overflow")
RISING = ("count", "number", "lives", "instances", "retired")
"""Fields that another life never lowers."""

ROUNDED = {"p50", "p75", "p95", "p98", "p99", "p999", "mean"}
"""Fields computed in floating point, which need to agree to nine digits. Neighbouring buckets of a sketch differ by
about 1 %."""

ZERO_IF_ABSENT = {"lives", "instances", "retired"}


class Unequal(NamedTuple):
    """A field that differs. None means absent."""

    field: str
    published: Any
    replayed: Any


def unequal(
    published: Mapping[str, Any], replayed: Mapping[str, Any], fields: Iterable[str] = (*LASTING, *MOMENTARY)
) -> list[Unequal]:
    """Return the fields that differ. Numbers are compared exactly, those of ROUNDED to nine digits.

    `retired` may be between 0 and the replayed number, because forgetting depends on the aggregator's wall clock.
    """
    found = []
    for field in fields:
        theirs, ours = published.get(field), replayed.get(field)
        if field in ZERO_IF_ABSENT:
            theirs, ours = theirs or 0, ours or 0
        if not _same(field, theirs, ours):
            found.append(Unequal(field, theirs, ours))
    return found


def unequal_between(
    published: Mapping[str, Any], noticed: Mapping[str, Any], unnoticed: Mapping[str, Any]
) -> tuple[list[Unequal], bool]:
    """Return the fields that differ, and whether some could not be determined.

    Whether a life was living can depend on batches that the ledger lacks. `noticed` is the sum if the aggregator
    noticed all silence that it may have noticed, `unnoticed` the sum if it noticed only what it must have noticed. If
    the published sum equals neither, the fields in which both agree must match, counts and living lives must lie
    between the two, and the other fields are undetermined.
    """
    found = unequal(published, noticed)
    if not found or not unequal(published, unnoticed):
        return [], False
    open_ = {one.field for one in unequal(noticed, unnoticed)}
    left = [one for one in found if not (_between(one, unnoticed) if one.field in RISING else one.field in open_)]
    return left, bool(open_) and not left


def _between(one: Unequal, unnoticed: Mapping[str, Any]) -> bool:
    return isinstance(one.published, int) and (one.replayed or 0) <= one.published <= (unnoticed.get(one.field) or 0)


def _same(field: str, published: Any, replayed: Any) -> bool:
    if field == "overflow":
        return (published or False) is (replayed or False)
    if isinstance(published, bool) or not isinstance(published, (int, float, type(None))):
        return False
    if field == "retired":
        return isinstance(published, int) and 0 <= published <= replayed
    if field in ROUNDED and published is not None and replayed is not None:
        try:
            return math.isclose(published, replayed, rel_tol=1e-9)
        except OverflowError:  # an integer beyond the range of floats
            return False
    return bool(published == replayed)
