"""The comparison at the end: pure, so that it can be tested with numbers that do not agree."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tallystream.compose.demonstration.journal import Journal
    from tallystream.compose.demonstration.replay import Name

PROCESSED = ("flights.processed", "count")


class Line(NamedTuple):
    """One line of the table: what it is, its number as text, and whether it agrees (None: it only informs)."""

    what: str
    value: str
    agrees: bool | None = None


class Evidence(NamedTuple):
    """Everything that was counted, from independent places."""

    sent: int
    aggregate: Mapping[Name, float]
    replayed: Mapping[Name, float]
    stored: int
    journals: Sequence[Journal]
    distinct: int
    dips: Sequence[str]


def compare(evidence: Evidence) -> list[Line]:
    """Return the table. The demonstration succeeded when no line disagrees."""
    processed = int(evidence.aggregate.get(PROCESSED, 0))
    twice = processed - evidence.sent
    journaled = sum(journal.processed for journal in evidence.journals)
    acknowledged = sum(journal.acknowledged for journal in evidence.journals)
    by_position = processed - _covered(evidence.aggregate)
    by_offset = journaled - evidence.distinct
    differing = differences(evidence.aggregate, evidence.replayed)
    unlike = f"{len(differing)} of {len(evidence.replayed)}" + "".join(f"\n{text}" for text in differing)
    return [
        Line("events sent", f"{evidence.sent:,}"),
        Line("processed, by the aggregate", f"{processed:,}"),
        Line("processed twice, by the aggregate (less what was sent)", f"{twice:,}", twice > 0),
        Line("processed twice, by the aggregate's positions", f"{by_position:,}", by_position == twice),
        Line("processed, by the journals", f"{journaled:,}", journaled == processed),
        Line("processed twice, by the journals' offsets", f"{by_offset:,}", by_offset == twice),
        Line("different events, by the journals", f"{evidence.distinct:,}", evidence.distinct == evidence.sent),
        Line("acknowledged increments of the journals", f"{acknowledged:,}", acknowledged <= processed),
        Line("processed, in the store", f"{evidence.stored:,}", evidence.stored == processed),
        Line("sums unlike a plain replay of metrics", unlike, bool(evidence.replayed) and not differing),
        Line("dips of a count while it ran", f"{len(evidence.dips)}", not evidence.dips),
    ]


def differences(aggregate: Mapping[Name, float], replayed: Mapping[Name, float]) -> list[str]:
    """Return a sentence for every sum that the two do not share, sorted."""
    return [
        f"{label} {field}: aggregate {aggregate.get((label, field))}, replay {replayed.get((label, field))}"
        for label, field in sorted(aggregate.keys() | replayed.keys())
        if aggregate.get((label, field)) != replayed.get((label, field))
    ]


def _covered(aggregate: Mapping[Name, float]) -> int:
    positions = [label for label, field in aggregate if field == "position"]
    return sum(int(aggregate[label, "position"]) - int(aggregate[label, "start"]) for label in positions)
