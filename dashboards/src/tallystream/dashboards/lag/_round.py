"""What one round found. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tallystream.dashboards.lag.model import GroupLag, Place

QUERY = "ledger:"
"""What the name of a group begins with that the ledger alone knows: a query without a consumer group."""


@dataclass(frozen=True, slots=True)
class Round:
    """What one round found.

    `groups` are all groups that are watched, those that could not be read among them; `gone` are known groups of which
    the broker said that they do not exist. A group is gone only by such an answer, never because it is missing from a
    listing. `problems` are sentences, sorted. `places` has start and end of every partition that was read. The ends
    were asked for at `asked_ms` and answered at `ts_ms` (epoch ms), which is the time of the round. Not `complete`: a
    broker did not answer the listing, so there may be groups of which nothing is known.
    """

    groups: tuple[GroupLag, ...]
    problems: tuple[str, ...] = ()
    gone: frozenset[str] = frozenset()
    places: Mapping[Place, tuple[int, int]] = field(default_factory=dict)
    asked_ms: int = 0
    ts_ms: int = 0
    complete: bool = True
