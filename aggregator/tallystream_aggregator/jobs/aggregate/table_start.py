"""Find where a table begins, and how: as it is on `metrics-table`, or as the settings say for a new one."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from tallystream.errors import ConfigError
from tallystream_aggregator.jobs.aggregate.generations import newest_row
from tallystream_aggregator.jobs.aggregate.settings import START_REMEDY, parse_start
from tallystream_aggregator.stream.broker import Place, unknown
from tallystream_aggregator.stream.positions import by_place, by_topic, visible_row
from tallystream_aggregator.table.sum_tags import SumTags

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tallystream_aggregator.jobs.aggregate.settings import AggregateSettings, Start
    from tallystream_aggregator.kafka.topic_selection import Offsets, Selection
    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_aggregator.stream.broker import Bounds, Positions
    from tallystream_aggregator.stream.kafka.broker import KafkaBroker

log = logging.getLogger(__name__)


class TableStart(NamedTuple):
    """How a table begins or continues, with which shards and tags.

    `offsets` are those at which a new table begins, topic → partition → offset; empty for one that exists.
    """

    offsets: Offsets
    shards: int
    sum_tags: SumTags

    @property
    def loops(self) -> int:
        """The number of loops: one for each shard, and the combiner of several shards."""
        return self.shards if self.shards == 1 else self.shards + 1


def table_start(settings: AggregateSettings, broker: KafkaBroker) -> TableStart:
    """Return how the table begins, or goes on as it is on `metrics-table` now. Another driver may begin it meanwhile.

    A table that is on `metrics-table` takes precedence over the setting `start`.

    Raises:
        ConfigError: the settings do not fit the table, or a new table would begin in the middle of a topic and the
            settings don't say where, or a topic has no append times.
        TallystreamError: `metrics` does not exist.
        BrokerError, KafkaException: the broker did not answer.
    """
    topics, selection = settings.topics, settings.selection
    read = broker.partitions()
    selection.require_all(read)
    log.info("reading %s", ", ".join(read))
    positions = visible_row(broker, Place(topics.table, 0), 0)
    if positions is None:
        return _new(settings, broker, read)
    if settings.start is not None:
        log.warning(
            "%s has a table, which continues: --from is ignored; to begin a new one, delete the topics %s, %s and %s",
            *(topics.table, topics.table, topics.agg, topics.shards),
        )
    otlp = positions.otlp
    if otlp is None:  # release 0.1 has written the row
        last = newest_row(broker, Place(topics.ledger, 0))
        otlp = () if last is None else tuple(last.otlp)
    _require_selected(positions.positions, otlp, selection, topics)
    shards, tags = positions.of, positions.sum_tags
    if settings.shards not in (None, shards):
        raise ConfigError(
            "--shards",
            settings.shards,
            f"the table has {shards}: leave the option out, or run tallystream rebuild with it",
        )
    if settings.sum_tags not in (None, tags):
        given = settings.sum_tags
        raise ConfigError(
            "--drop-tag" if given.keep is None else "--keep-tags",
            ",".join(given.drop if given.keep is None else given.keep),
            f"the sums of the table have {tags}: leave the option out, or run tallystream rebuild with it",
        )
    return TableStart({}, shards, tags)


def _new(settings: AggregateSettings, broker: KafkaBroker, read: Mapping[str, Collection[int]]) -> TableStart:
    offsets = resolve(parse_start(settings.start or "earliest"), read, broker)
    missing = {t: late for t, firsts in offsets.items() if (late := {p: first for p, first in firsts.items() if first})}
    if missing and settings.start is None:
        raise ConfigError(
            "--from",
            "earliest",
            f"a new table would begin in the middle (topic → partition → offset: {missing}), so the sums would lack "
            "what came before: accept that with --from earliest",
        )
    return TableStart(offsets, settings.shards or 1, settings.sum_tags or SumTags())


def resolve(start: Start, read: Mapping[str, Collection[int]], broker: KafkaBroker) -> Offsets:
    """Return the offset at which `start` begins, for each partition in `read`, but at least the partition's first one.

    `read` and the result are by topic and partition.

    Raises:
        ConfigError: the offsets do not name a partition, or an offset is beyond the end of its partition.
        BrokerError, KafkaException: the broker did not answer in time.
    """
    places = [Place(topic, p) for topic, partitions in read.items() for p in partitions]
    bounds = broker.bounds(places)
    if missing := [place for place in places if place not in bounds]:
        raise unknown(missing[0])
    wanted = {place: found.end if start == "latest" else found.first for place, found in bounds.items()}
    if isinstance(start, dict):
        wanted = by_place(start)
        _require_offsets(wanted, bounds)
    elif isinstance(start, int):
        later = broker.offsets_at(places, start)
        wanted = {place: offset if offset >= 0 else bounds[place].end for place, offset in later.items()}
    return by_topic({place: max(found.first, wanted[place]) for place, found in bounds.items()})


def _require_offsets(found: Positions, bounds: Mapping[Place, Bounds]) -> None:
    """Require an offset for each partition, at most its end."""
    wrong = []
    for place, known in bounds.items():
        offset = found.get(place, -1)
        if offset < 0:
            wrong.append(f"it has no offset for {place.topic}, partition {place.partition}")
        elif offset > known.end:
            wrong.append(f"{place.topic}, partition {place.partition}, ends at {known.end}, before {offset}")
    if wrong:
        raise ConfigError("--from", str(by_topic(found)), f"{'; '.join(wrong)}; {START_REMEDY}")


def _require_selected(ends: Offsets, otlp: Collection[str], selection: Selection, topics: Topics) -> None:
    """Require that all that the table has read is still selected: its sums include the rest forever.

    `otlp` are the topics that it has read as OTLP metrics, which have to be selected as such.
    """
    left = {t: gone for t, ps in ends.items() if (gone := [int(p) for p in ps if not selection.reads(t, int(p))])}
    if left:
        option = "--topic-pattern" if selection.partitions is None else "--partitions"
        raise ConfigError(
            option,
            selection.pattern or selection.partitions or selection.topic,
            f"the table on {topics.table} has read more (topic → partitions: {left}): take these in, too",
        )
    if missing := sorted(set(otlp) & ends.keys() - set(selection.otlp)):
        raise ConfigError(
            "--otlp-topic",
            ", ".join(selection.otlp),
            f"the table on {topics.table} has read OTLP metrics from {', '.join(missing)}: add "
            f"{' '.join(f'--otlp-topic {name}' for name in missing)}",
        )
