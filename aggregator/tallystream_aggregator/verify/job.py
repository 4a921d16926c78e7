"""`tallystream verify`: reads the topics and passes their records to `check`, which compares."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from tallystream.decoding import json_decoder
from tallystream.errors import ConfigError
from tallystream_aggregator.kafka import clients
from tallystream_aggregator.kafka.auth import check_login
from tallystream_aggregator.kafka.ledger import QUERY, LedgerRow, highest_epoch, otlp_topics, read_rows, rows
from tallystream_aggregator.kafka.topics import Topics
from tallystream_aggregator.times import parse_time_ms
from tallystream_aggregator.verify import reader
from tallystream_aggregator.verify.check import Check, Difference, Outcome
from tallystream_aggregator.verify.ledger import LedgerBatches, Limit
from tallystream_aggregator.verify.lives import Settings
from tallystream_aggregator.verify.published import Ends, PartitionName, PublishedSums, by_partition, refused_record
from tallystream_aggregator.verify.replay import Replay

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


TIME_HINT = "give a time in UTC as in 2026-11-20T10:00, or ledger:2026-11-20T10:00"
OFFSETS_HINT = 'give the offsets at which the table began, as in {"metrics":{"0":123}}'

_decode_offsets = json_decoder(dict[str, dict[int, int]])


@dataclass(frozen=True, slots=True)
class VerifySettings:
    """The settings of `tallystream verify`.

    `since` and `to` bound the period: sums of batches after `since`, up to `to`. `began` has the offsets at which the
    table began, if that was not the beginning of the topic.

    Raises:
        ConfigError: a setting can't be used.
    """

    bootstrap_servers: str
    topic_prefix: str = ""
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)
    since: str | None = None
    to: str | None = None
    began: str | None = None
    rules: Settings = field(default_factory=Settings)

    def __post_init__(self) -> None:
        if self.rules.max_app_metrics < 1:
            raise ConfigError("--max-app-metrics", self.rules.max_app_metrics, "give a whole number above zero")
        _parse_time("--from", self.since)
        _parse_time("--to", self.to)
        _offsets(self.began)


def run(settings: VerifySettings, *, progress: Callable[[int], None] = lambda _records: None) -> Outcome:
    """Replay `metrics` up to what was published when this began, and return the result of the comparison.

    `progress` is called after every record with the number replayed so far. Nothing is written.

    Raises:
        ConfigError: the start of the table is unknown or its records were deleted, or there is nothing to compare.
        TallystreamError: the broker can't be reached, or records were deleted while they were read.
    """
    with clients.broker_errors(settings.bootstrap_servers):
        return _run(settings, progress)


def _run(settings: VerifySettings, progress: Callable[[int], None]) -> Outcome:
    topics = Topics(settings.topic_prefix)
    kafka = {**settings.kafka, "bootstrap.servers": settings.bootstrap_servers}
    check_login(kafka)
    last = _last_rows(kafka, topics)
    known = _known(last)
    rules = replace(settings.rules, otlp_topics=otlp_topics_of(settings.rules.otlp_topics, last))
    names = sorted({reader.split(partition)[0] for partition in known}) or [topics.metrics, *rules.otlp_topics]
    ranges = reader.bounds(kafka, *names)
    if not ranges:
        raise ConfigError("--topic-prefix", settings.topic_prefix, f"there is no topic {', '.join(names)}")
    # The ledger is read before the sums, so the sums of all its batches are there.
    to = _limit("--to", settings.to, kafka, names)
    ledger = LedgerBatches(to=to, since=_limit("--from", settings.since, kafka, names))
    for row in rows(raw.value for raw in reader.read_all(kafka, reader.bounds(kafka, topics.ledger))):
        ledger.add(row)
    begin = _begin(settings, ranges, ledger, kafka, known or set(ranges))
    if settings.to is not None and ledger.end is None:
        raise ConfigError("--to", settings.to, f"{topics.ledger} has no batch that had ended by then")
    written = reader.bounds(kafka, topics.agg)  # before the ledger, so that it has the epochs of these records
    sums = PublishedSums(
        end=None if settings.to is None else ledger.end,
        begin=None if settings.since is None else ledger.begin or {},
        bound=highest_epoch(_last_rows(kafka, topics)),
    )
    for raw in reader.read_all(kafka, written):
        sums.add(raw.key, raw.value)
    if not sums.newest:
        raise ConfigError("--topic-prefix", settings.topic_prefix, f"{topics.agg} has no sum of that period")
    readers = {partition: reader.Reader(kafka, partition, begin[partition]) for partition in ranges}
    try:
        check = Check(
            Replay(rules),
            begin,
            ledger.end,
            lambda partition, end: readers[partition].until(end) if partition in readers else (),
            batches=ledger.batches,
            letters=_letters(kafka, topics),
            tags=ledger.tags_of,
            on_record=progress,
        )
        highs = {partition: high for partition, (_, high) in reader.bounds(kafka, *names).items()}
        outcome = check.run(sums.to_compare(), sums.newest, sums.later, highs)
    finally:
        for one in readers.values():
            one.close()
    outcome.unreadable = sums.unreadable
    outcome.differences += [
        Difference(row.identity, "epoch", row.version[0], f"none above {sums.bound}", row.ends)
        for row in sums.foreign.values()
    ]
    return outcome


def _last_rows(kafka: Mapping[str, str], topics: Topics) -> list[LedgerRow]:
    return read_rows(topics.ledger, kafka) if reader.bounds(kafka, topics.ledger) else []


def otlp_topics_of(given: tuple[str, ...], last: Sequence[LedgerRow]) -> tuple[str, ...]:
    """Return the topics of OTLP metrics: those of the last batch in the ledger, or the `given` ones if it has none.

    Raises:
        ConfigError: a topic was given that the table does not read as OTLP metrics.
    """
    found = otlp_topics(last)
    if found is None:
        return given
    wrong = sorted(set(given) - set(found))
    if wrong:
        read = f"OTLP metrics from {', '.join(found)}" if found else "no OTLP metrics"
        remedy = f"the ledger says that the aggregator reads {read}: leave the option out"
        raise ConfigError("--otlp-topic", ", ".join(wrong), remedy)
    return tuple(found)


def _known(last: Iterable[LedgerRow]) -> set[PartitionName]:
    """Return the partitions that the table reads: those of its last batch in the ledger."""
    partitions: set[PartitionName] = set()
    for row in last:
        if row.kind == "batch" and row.query == QUERY:
            partitions = set(by_partition(row.end))
    return partitions


def _letters(kafka: Mapping[str, str], topics: Topics) -> set[tuple[PartitionName, int]] | None:
    """Return the records that have dead letters, None if the topic is missing or retention deleted some of it."""
    ranges = reader.bounds(kafka, topics.dead)
    if not ranges or any(low > 0 for low, _ in ranges.values()):
        return None
    letters = (refused_record(raw.value) for raw in reader.read_all(kafka, ranges))
    return {letter for letter in letters if letter is not None}


def _begin(
    settings: VerifySettings,
    ranges: Mapping[PartitionName, tuple[int, int]],
    ledger: LedgerBatches,
    kafka: Mapping[str, str],
    known: set[PartitionName],
) -> Ends:
    """Return the offsets at which the table began. The table reads the partitions in `known`.

    Raises:
        ConfigError: the offsets are unknown, or records after them were deleted.
    """
    start = None if settings.began is None else by_partition(_offsets(settings.began))
    if start is not None and not (start and start.keys() <= ranges.keys()):
        raise ConfigError("--began", settings.began, f"the table has the partitions {sorted(ranges)}: {OFFSETS_HINT}")
    if start is None and ledger.partial is not None:
        start = by_partition(ledger.partial.start)
        if not start:
            raise ConfigError(
                "--began",
                "earliest",
                f"the table began in the middle (--accept-partial, {_utc(ledger.partial.ts)}), and the ledger does not "
                f"say where: {OFFSETS_HINT}",
            )
    began = dict.fromkeys(ranges, 0) | (start or {})
    deleted = {
        partition: low for partition, (low, _) in ranges.items() if partition in known and low > began[partition]
    }
    if deleted:
        raise ConfigError(
            "--began",
            settings.began or "earliest",
            f"records that the table has taken were deleted (partition -> first offset left: {deleted}), so its sums "
            "can't be replayed from nothing; the earliest exact start is a table that began at or after "
            f"{_earliest_start(kafka, ranges)}",
        )
    return began


def _earliest_start(kafka: Mapping[str, str], ranges: Mapping[PartitionName, tuple[int, int]]) -> str:
    """Return the append time of the oldest record of each partition, the latest of these."""
    firsts = [next(iter(reader.read_all(kafka, {partition: range_})), None) for partition, range_ in ranges.items()]
    times_ms = [record.timestamp_ms for record in firsts if record is not None]
    return _utc(max(times_ms)) if times_ms else "now"


def _utc(ts_ms: int) -> str:
    return datetime.fromtimestamp(ts_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _limit(option: str, text: str | None, kafka: Mapping[str, str], names: list[str]) -> Limit | None:
    time = _parse_time(option, text)
    if time is None:
        return None
    by_ledger, ts_ms = time
    return Limit(ts_ms, None if by_ledger else reader.at_time(kafka, names, ts_ms))


def _parse_time(option: str, text: str | None) -> tuple[bool, int] | None:
    """Return whether a time is one of the ledger, and the time in epoch ms; None if `text` is None."""
    if text is None:
        return None
    try:
        at_ms = parse_time_ms(text.removeprefix("ledger:"))
    except ValueError as error:
        raise ConfigError(option, text, TIME_HINT) from error
    return text.startswith("ledger:"), at_ms


def _offsets(text: str | None) -> dict[str, dict[int, int]]:
    if text is None:
        return {}
    try:
        return _decode_offsets(text)
    except msgspec.DecodeError as error:
        raise ConfigError("--began", text, OFFSETS_HINT) from error
