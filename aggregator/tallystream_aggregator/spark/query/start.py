"""Find where the aggregator begins: at its checkpoint, at an initial state, or with a new table."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from tallystream.errors import ConfigError
from tallystream_aggregator.initial_state import InitialState, initial_state_path, read_initial_state
from tallystream_aggregator.kafka import ledger
from tallystream_aggregator.kafka.start_position import parse_start, resolve
from tallystream_aggregator.spark.checkpoint import has_begun, last_committed, stored_first
from tallystream_aggregator.spark.query.settings import GROUP

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from tallystream_aggregator.kafka.topic_selection import Offsets, Selection
    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_aggregator.spark.query.settings import AggregateSettings

log = logging.getLogger(__name__)


class StartPosition(NamedTuple):
    """The next offset of each partition for a new table, by topic and partition; empty for a table that continues.

    `partial` tells whether a new table lacks earlier records, which `accept_partial` allows.
    """

    offsets: Offsets
    partial: bool = False


def start_position(settings: AggregateSettings, topics: Topics, kafka: Mapping[str, str]) -> StartPosition:
    """Return where to begin. A checkpoint whose first batch has begun takes precedence over the setting `start`.

    Before that, a table without the setting begins where an earlier start stored that it would.

    Raises:
        ConfigError: the table would begin without the records of an earlier table, or in the middle of a topic, and the
            settings don't allow that; the checkpoint has read more than is selected; the initial state is outdated; or
            `start` is set although there is an initial state.
        KafkaException: the broker did not answer.
    """
    start = parse_start(settings.start or "earliest")
    selection = settings.selection(topics)
    read = selection.find(kafka)
    done = last_committed(settings.checkpoint)
    if done is not None:
        if settings.start is not None:
            log.info("%s continues where it stopped; --from %s is for a new one", settings.checkpoint, settings.start)
        require_otlp(done[1], ledger.read_rows(topics.ledger, kafka), selection, str(settings.checkpoint))
        _require_read(done[1], selection, str(settings.checkpoint))
        return StartPosition({})
    initial_state = initial_state_of(settings)
    if initial_state is None and settings.start is None and _has_begun(topics, kafka):
        raise ConfigError(
            "--checkpoint",
            str(settings.checkpoint),
            f"it has no table, and {topics.ledger} says that there was one: name its checkpoint; or, if that is lost, "
            f"run tallystream rebuild --checkpoint {settings.checkpoint}; or begin from nothing with --from earliest",
        )
    if initial_state is not None and settings.start is not None:
        raise ConfigError("--from", settings.start, f"the checkpoint has an initial state: move {initial_state} away")
    offsets = _stored(settings) or resolve(start, read, settings.topic_prefix + GROUP, topics.ledger, kafka)
    restored: Offsets = {}
    if initial_state is not None:
        log.info("beginning with the table in %s", initial_state)
        found = read_initial_state(initial_state)
        _require_current(found, settings, topics, kafka)
        restored = found.offsets
        require_otlp(restored, ledger.read_rows(topics.ledger, kafka), selection, str(initial_state))
        _require_read(restored, selection, str(initial_state))
    missing = {
        topic: late
        for topic, firsts in offsets.items()
        if (late := {p: first for p, first in firsts.items() if first > 0 and p not in restored.get(topic, {})})
    }
    if missing and not settings.accept_partial:
        raise ConfigError(
            "--checkpoint",
            str(settings.checkpoint),
            f"it is new, and would begin in the middle (topic → partition → offset: {missing}), so the sums would lack "
            "what came before: name the checkpoint that has it, or accept that with --accept-partial",
        )
    offsets = {topic: firsts | restored.get(topic, {}) for topic, firsts in offsets.items()}
    return StartPosition(offsets, partial=bool(missing))


def _stored(settings: AggregateSettings) -> Offsets:
    """Return the offsets that an earlier start has stored, empty if there are none or the setting `start` applies."""
    stored = stored_first(settings.checkpoint)
    if settings.start is None or not stored:
        return stored
    if not has_begun(settings.checkpoint):
        return {}
    log.warning(
        "%s: its first batch has begun at %s; --from %s is for a new one", settings.checkpoint, stored, settings.start
    )
    return stored


def require_otlp(ends: Offsets, rows: Iterable[ledger.LedgerRow], selection: Selection, place: str) -> None:
    """Require that topics which the table has read as OTLP metrics are selected as such.

    `ends` are the offsets that the table in `place` has reached, `rows` those of the ledger.

    Raises:
        ConfigError: a topic is not.
    """
    left = sorted({topic for topic in ledger.otlp_topics(rows) or () if topic in ends} - set(selection.otlp))
    if left:
        raise ConfigError(
            "--otlp-topic",
            ", ".join(selection.otlp),
            f"the table in {place} has read OTLP metrics from {', '.join(left)}: add "
            f"{' '.join(f'--otlp-topic {name}' for name in left)}, or begin a new table with a new --checkpoint and "
            "--from earliest",
        )


def _require_read(ends: Offsets, selection: Selection, place: str) -> None:
    """Require that all that the table has read is still selected: its sums include the rest forever.

    Raises:
        ConfigError: the table has read other topics or partitions, too.
    """
    left = {t: gone for t, ps in ends.items() if (gone := [int(p) for p in ps if not selection.reads(t, int(p))])}
    if left:
        option = "--topic-pattern" if selection.partitions is None else "--partitions"
        given = selection.pattern or selection.partitions or selection.topic
        raise ConfigError(
            option,
            given,
            f"the table in {place} has read more (topic → partitions: {left}): take these in, too, or begin a new "
            "table with a new --checkpoint and --from earliest",
        )


def _require_current(
    initial_state: InitialState, settings: AggregateSettings, topics: Topics, kafka: Mapping[str, str]
) -> None:
    """Require that the table has finished no batch since the initial state was made.

    It has if its checkpoint was lost later, or if an aggregator was running during the rebuild.

    Raises:
        ConfigError: the initial state is older than the table's last batches.
    """
    rows = ledger.read_rows(topics.ledger, kafka)
    later = any(row.epoch > initial_state.epoch for row in rows if row.query == ledger.QUERY and row.kind == "batch")
    ends = ledger.finished(rows)
    later |= any(
        end > initial_state.offsets.get(topic, {}).get(p, end) for topic, ps in ends.items() for p, end in ps.items()
    )
    # The second condition: the aggregator that has the lease may just have finished the table's first batch.
    if later and last_committed(settings.checkpoint) is None:
        raise ConfigError(
            "--checkpoint",
            str(settings.checkpoint),
            f"it has no table, and {initial_state_path(settings.checkpoint)} is older than the table's last batches: "
            f"run tallystream rebuild --checkpoint {settings.checkpoint}",
        )


def initial_state_of(settings: AggregateSettings) -> Path | None:
    """Return the path of the initial state that a rebuild wrote for the checkpoint, or None if there is none."""
    path = initial_state_path(settings.checkpoint)
    return path if path.exists() else None


def _has_begun(topics: Topics, kafka: Mapping[str, str]) -> bool:
    rows = ledger.read_rows(topics.ledger, kafka)
    return any(row.kind == "batch" and row.query == ledger.QUERY for row in rows)
