"""Converts sums to families of Prometheus' text format, which is valid for any names of metrics. Pure functions.

A family has one kind, and the name of a sample belongs to one family. If two kinds want the same name (a gauge and a
histogram `x`, or a gauge `x.sum` and the histogram), a counter takes precedence over a summary, and a summary over a
gauge. The other family gets the suffix `_value` and its series get the label `name`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tallystream_aggregator.health.exposition import Family, Sample
from tallystream_aggregator.sinks.prometheus import names

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

KINDS: tuple[names.Kind, ...] = ("counter", "summary", "gauge")
_SUMMARY = ("", "_sum", "_count")
_OURS = (
    (names.LIVING_LIVES, "lives", "Living lives whose newest snapshot has the metric."),
    (names.LIVING_INSTANCES, "instances", "Different instance IDs of the living lives."),
    (names.RETIRED_LIVES, "retired", "Forgotten lives whose counts are part of the sum."),
    (names.OVERFLOW, "overflow", "1 where a number of the sum is beyond its range; its largest or smallest is shown."),
)


class Held(NamedTuple):
    """The newest values of one sum. `tags` are those of the point, `labels` the result of `names.labels` for them."""

    name: str
    tags: Mapping[str, str]
    labels: Mapping[str, str]
    fields: Mapping[str, float]
    ts_ms: int


class Exposition(NamedTuple):
    """The families, and `notes` for the operator: a sentence for each family that is renamed or shared."""

    families: list[Family]
    notes: dict[str, str]


def exposition(sums: Collection[Held]) -> Exposition:
    """Return all sums as families: first Tallystream's own, then those of the metrics, sorted by kind and name."""
    ours = _own(sums)
    wanted: dict[names.Kind, dict[str, list[tuple[Held, names.Place, float]]]] = {kind: {} for kind in KINDS}
    for held in sums:
        for field, value in held.fields.items():
            place = names.place(held.name, held.tags["metric_type"], field)
            if place is not None:
                wanted[place.kind].setdefault(place.family, []).append((held, place, value))
    taken = {family.name: ("ours", family.name) for family in ours}
    found: dict[str, Family] = {}
    notes: dict[str, str] = {}
    for kind in KINDS:
        for plain, samples in sorted(wanted[kind].items()):
            final = plain
            while not _free(taken, kind, final):
                final += names.RENAME_SUFFIX
            taken.update(dict.fromkeys(_samples_of(kind, final), (kind, final)))
            family = found.setdefault(final, Family(final, kind, _help(kind, samples[0]), []))
            family.samples.extend(_sample(held, place, value, named=final != plain) for held, place, value in samples)
            notes |= _note(plain, final, {held.name for held, _, _ in samples})
    return Exposition([*ours, *found.values()], notes)


def _own(sums: Collection[Held]) -> list[Family]:
    named = [(held, {"name": names.label_value(held.name), **held.labels}) for held in sums]
    families = [
        Family(
            family,
            "gauge",
            help_,
            [Sample(int(held.fields[field]), labels) for held, labels in named if field in held.fields],
        )
        for family, field, help_ in _OURS
    ]
    times = [Sample(held.ts_ms / 1000, labels) for held, labels in named]
    return [
        Family(names.SUMS, "gauge", "Sums that are shown.", [Sample(len(sums), {})]),
        *families,
        Family(names.SUM_TIME, "gauge", "As of when the sum is, by the table's clock, epoch seconds.", times),
    ]


def _samples_of(kind: names.Kind, family: str) -> list[str]:
    return [family + end for end in (_SUMMARY if kind == "summary" else ("",))]


def _free(taken: Mapping[str, tuple[str, str]], kind: names.Kind, family: str) -> bool:
    return all(taken.get(sample, (kind, family)) == (kind, family) for sample in _samples_of(kind, family))


def _sample(held: Held, place: names.Place, value: float, *, named: bool) -> Sample:
    labels = names.labels(held.name, held.tags, named=True) if named else held.labels
    if place.quantile:
        labels = {**labels, "quantile": place.quantile}
    return Sample(value, labels, place.suffix)


def _help(kind: names.Kind, first: tuple[Held, names.Place, float]) -> str:
    what = {"counter": "Count", "summary": "Distribution", "gauge": "Value"}[kind]
    return f"{what} of {first[0].name}, over all instances of each app."


def _note(plain: str, final: str, metrics: Collection[str]) -> dict[str, str]:
    of = " and ".join(sorted(repr(name) for name in metrics))
    if final != plain:
        return {plain: f"{plain} is the name of another kind of family: {of} is called {final}, with the label name"}
    if len(metrics) > 1:
        return {plain: f"{plain} is the family of {of}: they differ in the label name"}
    return {}
